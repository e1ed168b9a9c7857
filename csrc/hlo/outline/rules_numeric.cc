// SPDX-License-Identifier: Apache-2.0
#include "absl/algorithm/container.h"
#include "hlo/outline/rules.h"

namespace hloenv::outline_rules {

Why Rng(const Node& node) {
  if (Why why = NeedArrays(node, 2)) return why;
  return node.operand(0).IsScalar() && node.operand(1).IsScalar()
             ? nullptr
             : "it takes scalars";
}

Why RngBitGenerator(const Node& node) {
  if (node.count() != 1 || !node.operand(0).IsArray())
    return "it takes a state";
  if (node.shape().IsArray()) return nullptr;
  const auto& elements = node.shape().elements;
  return elements.size() == 2 && elements[1].IsArray() &&
                 SameShape(elements[0], node.operand(0))
             ? nullptr
             : "it has another result";
}

// Batches of square matrices.
static bool AreMatrices(const OutlineShape& shape) {
  const Ints& dims = shape.dims;
  return dims.size() >= 2 && dims[dims.size() - 1] == dims[dims.size() - 2];
}

Why Cholesky(const Node& node) {
  if (Why why = Unary(node)) return why;
  return AreMatrices(node.shape()) ? nullptr : "it works on square matrices";
}

Why TriangularSolve(const Node& node) {
  if (Why why = NeedArrays(node, 2)) return why;
  return AreMatrices(node.operand(0)) &&
                 node.operand(1).dims == node.shape().dims &&
                 node.rank() == Node::Rank(node.operand(0))
             ? nullptr
             : "dimensions do not fit";
}

Why Fft(const Node& node) {
  if (Why why = NeedArrays(node, 1)) return why;
  const Ints& lengths = node.List(Field::kSizes);
  if (lengths.empty() || lengths.size() > 3 ||
      static_cast<int64_t>(lengths.size()) > node.rank() ||
      node.rank() != Node::Rank(node.operand(0))) {
    return "its lengths do not fit";
  }
  return absl::c_all_of(
             lengths,
             [](int64_t length) { return length >= 0 && length <= kMaxWindow; })
             ? nullptr
             : "its lengths do not fit";
}

Why TopK(const Node& node) {
  if (node.count() != 1 || !node.operand(0).IsArray() ||
      node.operand(0).dims.empty()) {
    return "it works on an array";
  }
  const int64_t k = node.Number(Field::kSizes);
  Ints dims = node.operand(0).dims;
  if (k < 0 || k > dims.back()) return "k is out of range";
  dims.back() = k;
  return Results(node, 2, dims);
}

Why ReducePrecision(const Node& node) {
  if (Why why = Unary(node)) return why;
  const Ints& bits = node.List(Field::kBits);
  return bits.size() == 2 && InRange(bits[0] - 1, 64) && InRange(bits[1], 64)
             ? nullptr
             : "its bits are out of range";
}

Why DimensionSize(const Node& node) {
  const bool is_setting = node.self().opcode == Opcode::kSetDimensionSize;
  if (Why why = NeedArrays(node, is_setting ? 2 : 1)) return why;
  if (is_setting && (!node.operand(1).IsScalar() ||
                     node.operand(0).dims != node.shape().dims)) {
    return "dimensions do not fit";
  }
  if (!is_setting && !node.shape().IsScalar()) return "its result is a scalar";
  return InRange(node.Number(Field::kDimensions), Node::Rank(node.operand(0)))
             ? nullptr
             : "its dimension is not there";
}

Why Id(const Node& node) {
  if (Why why = NeedArrays(node, 0)) return why;
  return node.shape().IsScalar() && node.shape().type == xla::U32
             ? nullptr
             : "it is a u32[]";
}

// The feature's dimension is there, and all other operands are vectors.
Why BatchNorm(const Node& node) {
  for (int64_t i = 0; i < node.count(); ++i) {
    if (!node.operand(i).IsArray()) return "it works on arrays";
  }
  const Opcode opcode = node.self().opcode;
  const int64_t count = opcode == Opcode::kBatchNormTraining ? 3 : 5;
  if (node.count() != count) return "it has other operands";
  const OutlineShape& data = node.operand(0);
  const int64_t feature = node.Number(Field::kIndex);
  if (!InRange(feature, Node::Rank(data))) return "its feature is not there";
  const Ints vector = {data.dims[feature]};
  const bool has_gradient = opcode == Opcode::kBatchNormGrad;
  for (int64_t i = 1; i < count; ++i) {
    const Ints& expected = has_gradient && i == 4 ? data.dims : vector;
    if (node.operand(i).dims != expected) return "dimensions do not fit";
  }
  if (opcode == Opcode::kBatchNormInference) {
    return SameShape(node.shape(), data) ? nullptr : "it has another result";
  }
  const auto& results = node.shape().elements;
  const bool fits = results.size() == 3 && SameShape(results[0], data) &&
                    results[1].dims == vector && results[2].dims == vector &&
                    results[1].IsArray() && results[2].IsArray();
  return fits ? nullptr : "it has another result";
}

}  // namespace hloenv::outline_rules
