// SPDX-License-Identifier: Apache-2.0
#include "absl/algorithm/container.h"
#include "hlo/outline/rules.h"

namespace hloenv::outline_rules {

Why Unary(const Node& node) { return Elementwise(node, 1); }
Why Binary(const Node& node) { return Elementwise(node, 2); }

Why Select(const Node& node) {
  if (Why why = Elementwise(node, 3)) return why;
  return node.operand(0).type == xla::PRED ? nullptr : "it selects by pred";
}

Why Clamp(const Node& node) {
  if (Why why = NeedArrays(node, 3)) return why;
  for (int64_t i = 0; i < 3; ++i) {
    const bool may_be_scalar = i != 1 && node.operand(i).IsScalar();
    if (node.operand(i).dims != node.shape().dims && !may_be_scalar) {
      return "operands and result have other dimensions";
    }
  }
  return nullptr;
}

Why Compare(const Node& node) {
  if (Why why = Binary(node)) return why;
  if (node.operand(0).type != node.operand(1).type) {
    return "it compares different types";
  }
  const xla::PrimitiveType type = node.operand(0).type;
  // As in xla::Comparison: 1 float, 2 total order, 3 signed, 4 unsigned.
  switch (node.Number(Field::kCompareType)) {
    case -1:
      return nullptr;
    case 1:
      return xla::primitive_util::IsFloatingPointType(type) ||
                     xla::primitive_util::IsComplexType(type)
                 ? nullptr
                 : "a comparison of another type";
    case 2:
      return xla::primitive_util::IsFloatingPointType(type)
                 ? nullptr
                 : "a comparison of another type";
    case 3:
      return xla::primitive_util::IsSignedIntegralType(type)
                 ? nullptr
                 : "a comparison of another type";
    case 4:
      return xla::primitive_util::IsUnsignedIntegralType(type) ||
                     type == xla::PRED
                 ? nullptr
                 : "a comparison of another type";
    default:
      return "an unknown type of comparison";
  }
}

Why Complex(const Node& node) {
  if (Why why = Binary(node)) return why;
  return xla::primitive_util::IsComplexType(node.shape().type)
             ? nullptr
             : "its result is complex";
}

Why Copy(const Node& node) {
  if (node.count() != 1) return "it has one operand";
  return SameShape(node.operand(0), node.shape()) ? nullptr
                                                  : "it changes the shape";
}

Why BitcastConvert(const Node& node) { return NeedArrays(node, 1); }

Why Bitcast(const Node& node) {
  if (Why why = NeedArrays(node, 1)) return why;
  return NumBytes(node.operand(0)) == NumBytes(node.shape())
             ? nullptr
             : "it changes the size";
}

Why Broadcast(const Node& node) {
  if (Why why = NeedArrays(node, 1)) return why;
  const Ints& dims = node.List(Field::kDimensions);
  const Ints& from = node.operand(0).dims;
  if (dims.size() != from.size() || !AreDims(dims, node.rank())) {
    return "dimensions do not fit";
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (node.shape().dims[dims[i]] != from[i]) return "dimensions do not fit";
  }
  return nullptr;
}

Why Reshape(const Node& node) {
  if (Why why = NeedArrays(node, 1)) return why;
  return NumElements(node.operand(0)) == NumElements(node.shape())
             ? nullptr
             : "it changes the number of elements";
}

Why Transpose(const Node& node) {
  if (Why why = NeedArrays(node, 1)) return why;
  const Ints& dims = node.List(Field::kDimensions);
  if (Node::Rank(node.operand(0)) != node.rank() ||
      !IsPermutation(dims, node.rank())) {
    return "dimensions do not fit";
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (node.shape().dims[i] != node.operand(0).dims[dims[i]]) {
      return "dimensions do not fit";
    }
  }
  return nullptr;
}

Why Reverse(const Node& node) {
  if (Why why = Unary(node)) return why;
  return AreDims(node.List(Field::kDimensions), node.rank())
             ? nullptr
             : "dimensions do not fit";
}

Why Iota(const Node& node) {
  if (Why why = NeedArrays(node, 0)) return why;
  return InRange(node.Number(Field::kDimensions), node.rank())
             ? nullptr
             : "its dimension is not there";
}

Why Parameter(const Node& node) {
  return node.count() == 0 ? nullptr : "it has operands";
}

Why Constant(const Node& node) { return NeedArrays(node, 0); }

Why GetTupleElement(const Node& node) {
  if (node.count() != 1 || !node.operand(0).IsTuple()) {
    return "its operand is no tuple";
  }
  const auto& elements = node.operand(0).elements;
  const int64_t index = node.Number(Field::kIndex);
  if (!InRange(index, static_cast<int64_t>(elements.size()))) {
    return "the tuple has no such element";
  }
  return SameShape(elements[index], node.shape())
             ? nullptr
             : "the element has another shape";
}

Why Tuple(const Node& node) {
  if (!node.shape().IsTuple() ||
      static_cast<int64_t>(node.shape().elements.size()) != node.count()) {
    return "its shape is not that of its operands";
  }
  for (int64_t i = 0; i < node.count(); ++i) {
    if (!SameShape(node.shape().elements[i], node.operand(i))) {
      return "its shape is not that of its operands";
    }
  }
  return nullptr;
}

Why Concatenate(const Node& node) {
  if (node.count() == 0 || !AreArrays(node)) return "it works on arrays";
  const int64_t along = node.Number(Field::kDimensions);
  if (!InRange(along, node.rank())) return "its dimension is not there";
  Ints sum = node.operand(0).dims;
  for (int64_t i = 1; i < node.count(); ++i) {
    if (Node::Rank(node.operand(i)) != node.rank()) return "ranks differ";
    sum[along] += node.operand(i).dims[along];
  }
  return sum == node.shape().dims ? nullptr : "dimensions do not fit";
}

Why Slice(const Node& node) {
  if (Why why = NeedArrays(node, 1)) return why;
  const Ints& from = node.operand(0).dims;
  const Ints& starts = node.List(Field::kStarts);
  const Ints& limits = node.List(Field::kLimits);
  const Ints& strides = node.List(Field::kStrides);
  if (starts.size() != from.size() ||
      node.rank() != Node::Rank(node.operand(0)) ||
      limits.size() != from.size() || strides.size() != from.size()) {
    return "it slices other dimensions";
  }
  for (size_t i = 0; i < from.size(); ++i) {
    if (starts[i] < 0 || limits[i] < starts[i] || limits[i] > from[i] ||
        strides[i] < 1 || strides[i] > kMaxWindow) {
      return "a slice is out of range";
    }
  }
  return nullptr;
}

static Why HasStarts(const Node& node, int64_t first) {
  const int64_t rank = Node::Rank(node.operand(0));
  if (node.count() != first + rank) return "it has other starts";
  for (int64_t i = first; i < node.count(); ++i) {
    if (!node.operand(i).IsScalar() ||
        !xla::primitive_util::IsIntegralType(node.operand(i).type)) {
      return "it has other starts";
    }
  }
  return nullptr;
}

Why DynamicSlice(const Node& node) {
  if (node.count() < 1 || !AreArrays(node)) return "it works on arrays";
  if (Why why = HasStarts(node, 1)) return why;
  const Ints& sizes = node.List(Field::kSizes);
  if (sizes != node.shape().dims ||
      sizes.size() != node.operand(0).dims.size()) {
    return "its sizes are not those of its result";
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > node.operand(0).dims[i])
      return "it is larger than the whole";
  }
  return nullptr;
}

Why DynamicUpdateSlice(const Node& node) {
  if (node.count() < 2 || !AreArrays(node)) return "it works on arrays";
  if (Why why = HasStarts(node, 2)) return why;
  const Ints& sizes = node.operand(1).dims;
  if (node.operand(0).dims != node.shape().dims ||
      sizes.size() != node.shape().dims.size()) {
    return "dimensions do not fit";
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > node.shape().dims[i]) return "it is larger than the whole";
  }
  return nullptr;
}

Why Pad(const Node& node) {
  if (Why why = NeedArrays(node, 2)) return why;
  const Ints& from = node.operand(0).dims;
  const Ints& low = node.List(Field::kPadLow);
  const Ints& high = node.List(Field::kPadHigh);
  const Ints& interior = node.List(Field::kPadInterior);
  if (!node.operand(1).IsScalar() || low.size() != from.size() ||
      high.size() != from.size() || interior.size() != from.size() ||
      node.rank() != Node::Rank(node.operand(0))) {
    return "it pads other dimensions";
  }
  for (size_t i = 0; i < from.size(); ++i) {
    if (std::abs(low[i]) > kMaxWindow || std::abs(high[i]) > kMaxWindow ||
        interior[i] < 0 || interior[i] > kMaxWindow) {
      return "a padding is out of range";
    }
    const __int128 between = std::max<int64_t>(from[i] - 1, 0);
    if (from[i] + low[i] + high[i] + between * interior[i] !=
        node.shape().dims[i]) {
      return "dimensions do not fit";
    }
  }
  return nullptr;
}

}  // namespace hloenv::outline_rules
