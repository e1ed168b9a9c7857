// SPDX-License-Identifier: Apache-2.0
#include "absl/algorithm/container.h"
#include "hlo/outline/rules.h"

namespace hloenv::outline_rules {

// Whether computation `of` takes `count` arrays without dimensions, and has
// such results, one or a tuple of `results`.
static Why ScalarFunction(const Node& node, int64_t of, int64_t count,
                          int64_t results) {
  const OutlineComputation& called = node.called(of);
  if (static_cast<int64_t>(called.parameters.size()) != count) {
    return "its computation has other parameters";
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!node.parameter(of, i).IsScalar()) {
      return "its computation has other parameters";
    }
  }
  const OutlineShape& root = called.root_shape();
  if (root.IsScalar()) return results == 1 ? nullptr : "it has one result";
  if (!root.IsTuple() ||
      static_cast<int64_t>(root.elements.size()) != results) {
    return "its computation has another result";
  }
  return absl::c_all_of(root.elements,
                        [](const auto& each) { return each.IsScalar(); })
             ? nullptr
             : "its computation has another result";
}

// An array for one result, a tuple of arrays for several; all with `dims`.
Why Results(const Node& node, int64_t results, const Ints& dims) {
  if (results == 1 && node.shape().IsArray()) {
    return node.shape().dims == dims ? nullptr : "dimensions do not fit";
  }
  if (!node.shape().IsTuple() ||
      static_cast<int64_t>(node.shape().elements.size()) != results) {
    return "it has another number of results";
  }
  for (const OutlineShape& each : node.shape().elements) {
    if (!each.IsArray() || each.dims != dims) return "dimensions do not fit";
  }
  return nullptr;
}

// Arrays of the same dimensions, then as many scalars.
static Why ArraysAndInits(const Node& node) {
  const int64_t half = node.count() / 2;
  if (half == 0 || node.count() % 2 != 0)
    return "its operands are not in pairs";
  for (int64_t i = 0; i < half; ++i) {
    if (!node.operand(i).IsArray() ||
        node.operand(i).dims != node.operand(0).dims ||
        !node.operand(half + i).IsScalar()) {
      return "it works on arrays and scalars";
    }
  }
  return nullptr;
}

Why Reduce(const Node& node) {
  if (Why why = ArraysAndInits(node)) return why;
  const Ints& dims = node.List(Field::kDimensions);
  const Ints& from = node.operand(0).dims;
  if (!AreDims(dims, Node::Rank(node.operand(0)))) {
    return "dimensions do not fit";
  }
  if (node.num_called() != 1) return "it has one computation";
  Ints left;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!absl::c_linear_search(dims, static_cast<int64_t>(i))) {
      left.push_back(from[i]);
    }
  }
  const int64_t half = node.count() / 2;
  if (Why why = ScalarFunction(node, 0, 2 * half, half)) return why;
  return Results(node, half, left);
}

// The number of window positions along a dimension; -1 if XLA could not compute
// it.
static int64_t CountWindows(int64_t base, int64_t base_dilation, int64_t low,
                            int64_t high, int64_t size, int64_t window_dilation,
                            int64_t stride) {
  const __int128 dilated =
      base == 0 ? 0 : static_cast<__int128>(base - 1) * base_dilation + 1;
  const __int128 padded = dilated + low + high;
  const __int128 window = static_cast<__int128>(size - 1) * window_dilation + 1;
  if (padded < 0 || padded > kMaxBytes || window > kMaxBytes) return -1;
  if (padded == 0 || window > padded) return 0;
  return static_cast<int64_t>((padded - window) / stride) + 1;
}

// Checks that a window over the dimensions `base` has sizes that XLA supports,
// and `places` positions along each dimension.
static Why Window(const Node& node, const Ints& base, const Ints& places) {
  const struct {
    Field field;
    int64_t low;
  } kParts[] = {{Field::kWindowSize, 1},
                {Field::kWindowStride, 1},
                {Field::kWindowPadLow, -kMaxWindow},
                {Field::kWindowPadHigh, -kMaxWindow},
                {Field::kWindowLhsDilation, 1},
                {Field::kWindowRhsDilation, 1}};
  for (const auto& part : kParts) {
    const Ints& list = node.List(part.field);
    if (list.size() != base.size()) {
      return "its window has another number of dimensions";
    }
    for (const int64_t value : list) {
      if (value < part.low || value > kMaxWindow) {
        return "its window is out of range";
      }
    }
  }
  if (places.size() != base.size()) return "ranks differ";
  for (size_t i = 0; i < base.size(); ++i) {
    const int64_t count = CountWindows(
        base[i], node.List(Field::kWindowLhsDilation)[i],
        node.List(Field::kWindowPadLow)[i], node.List(Field::kWindowPadHigh)[i],
        node.List(Field::kWindowSize)[i],
        node.List(Field::kWindowRhsDilation)[i],
        node.List(Field::kWindowStride)[i]);
    if (count < 0) return "its window count is negative or larger than 2^46";
    if (count != places[i]) return "its window stands in other places";
  }
  return nullptr;
}

Why ReduceWindow(const Node& node) {
  if (Why why = ArraysAndInits(node)) return why;
  if (node.num_called() != 1) return "it has one computation";
  const int64_t half = node.count() / 2;
  const OutlineShape& first =
      node.shape().IsTuple() && !node.shape().elements.empty()
          ? node.shape().elements[0]
          : node.shape();
  if (Why why = Window(node, node.operand(0).dims, first.dims)) return why;
  if (Why why = ScalarFunction(node, 0, 2 * half, half)) return why;
  return Results(node, half, first.dims);
}

Why SelectAndScatter(const Node& node) {
  if (Why why = NeedArrays(node, 3)) return why;
  if (node.num_called() != 2) return "it has two computations";
  if (!node.operand(2).IsScalar() ||
      node.operand(0).dims != node.shape().dims) {
    return "dimensions do not fit";
  }
  if (Why why = Window(node, node.shape().dims, node.operand(1).dims)) {
    return why;
  }
  if (Why why = ScalarFunction(node, 0, 2, 1)) return why;
  return ScalarFunction(node, 1, 2, 1);
}

Why Dot(const Node& node) {
  if (Why why = NeedArrays(node, 2)) return why;
  Ints expected;
  Ints used[2] = {node.List(Field::kLhsBatch), node.List(Field::kRhsBatch)};
  const Ints& left = node.operand(0).dims;
  const Ints& right = node.operand(1).dims;
  const size_t num_batch = used[0].size();
  const Ints& lhs = node.List(Field::kLhsContracting);
  const Ints& rhs = node.List(Field::kRhsContracting);
  used[0].insert(used[0].end(), lhs.begin(), lhs.end());
  used[1].insert(used[1].end(), rhs.begin(), rhs.end());
  if (used[0].size() != used[1].size() ||
      num_batch != node.List(Field::kRhsBatch).size() ||
      !AreDims(used[0], Node::Rank(node.operand(0))) ||
      !AreDims(used[1], Node::Rank(node.operand(1)))) {
    return "its dimensions are not there";
  }
  for (size_t i = 0; i < used[0].size(); ++i) {
    if (left[used[0][i]] != right[used[1][i]]) return "dimensions do not fit";
    if (i < num_batch) expected.push_back(left[used[0][i]]);
  }
  for (int side = 0; side < 2; ++side) {
    const Ints& dims = side == 0 ? left : right;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!absl::c_linear_search(used[side], static_cast<int64_t>(i))) {
        expected.push_back(dims[i]);
      }
    }
  }
  return expected == node.shape().dims ? nullptr : "dimensions do not fit";
}

Why Convolution(const Node& node) {
  if (Why why = NeedArrays(node, 2)) return why;
  const int64_t rank = node.rank();
  if (rank < 2 || Node::Rank(node.operand(0)) != rank ||
      Node::Rank(node.operand(1)) != rank) {
    return "ranks differ";
  }
  const Ints& input = node.List(Field::kConvInput);
  const Ints& kernel = node.List(Field::kConvKernel);
  const Ints& output = node.List(Field::kConvOutput);
  if (!IsPermutation(input, rank) || !IsPermutation(kernel, rank) ||
      !IsPermutation(output, rank)) {
    return "its dimensions are not there";
  }
  Ints base;
  Ints places;
  for (int64_t i = 2; i < rank; ++i) {
    base.push_back(node.operand(0).dims[input[i]]);
    places.push_back(node.shape().dims[output[i]]);
  }
  if (Why why = Window(node, base, places)) return why;
  const Ints& sizes = node.List(Field::kWindowSize);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (node.operand(1).dims[kernel[i + 2]] != sizes[i]) {
      return "its window is not its kernel's size";
    }
  }
  const int64_t groups = node.Number(Field::kFeatureGroups);
  const int64_t batches = node.Number(Field::kBatchGroups);
  if (groups < 1 || groups > kMaxWindow || batches < 1 ||
      batches > kMaxWindow) {
    return "its groups are out of range";
  }
  return node.shape().dims[output[0]] ==
                     node.operand(0).dims[input[0]] / batches &&
                 node.shape().dims[output[1]] == node.operand(1).dims[kernel[1]]
             ? nullptr
             : "dimensions do not fit";
}

Why Gather(const Node& node) {
  if (Why why = NeedArrays(node, 2)) return why;
  const int64_t rank = Node::Rank(node.operand(0));
  const int64_t indices = Node::Rank(node.operand(1));
  const Ints& sizes = node.List(Field::kSizes);
  if (static_cast<int64_t>(sizes.size()) != rank ||
      !AreDims(node.List(Field::kOffsetDims), node.rank()) ||
      !AreDims(node.List(Field::kCollapsedDims), rank) ||
      !AreDims(node.List(Field::kIndexMap), rank) ||
      !AreDims(node.List(Field::kOperandBatch), rank) ||
      !AreDims(node.List(Field::kIndicesBatch), indices) ||
      !InRange(node.Number(Field::kIndexVectorDim), indices + 1)) {
    return "its dimensions are not there";
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > node.operand(0).dims[i]) {
      return "it is larger than the whole";
    }
  }
  return nullptr;
}

Why Scatter(const Node& node) {
  const int64_t results = node.count() / 2;
  if (node.count() < 3 || node.count() % 2 != 1 || node.num_called() != 1) {
    return "it has other operands";
  }
  for (int64_t i = 0; i < node.count(); ++i) {
    if (!node.operand(i).IsArray()) return "it works on arrays";
    if ((i < results && node.operand(i).dims != node.operand(0).dims) ||
        (i > results &&
         node.operand(i).dims != node.operand(results + 1).dims)) {
      return "dimensions do not fit";
    }
  }
  const int64_t rank = Node::Rank(node.operand(0));
  const int64_t indices = Node::Rank(node.operand(results));
  const int64_t updates = Node::Rank(node.operand(results + 1));
  if (!AreDims(node.List(Field::kOffsetDims), updates) ||
      !AreDims(node.List(Field::kCollapsedDims), rank) ||
      !AreDims(node.List(Field::kIndexMap), rank) ||
      !AreDims(node.List(Field::kOperandBatch), rank) ||
      !AreDims(node.List(Field::kIndicesBatch), indices) ||
      !InRange(node.Number(Field::kIndexVectorDim), indices + 1)) {
    return "its dimensions are not there";
  }
  if (Why why = ScalarFunction(node, 0, 2 * results, results)) return why;
  return Results(node, results, node.operand(0).dims);
}

Why Sort(const Node& node) {
  if (node.count() == 0 || node.num_called() != 1) return "it sorts arrays";
  for (int64_t i = 0; i < node.count(); ++i) {
    if (!node.operand(i).IsArray() ||
        node.operand(i).dims != node.operand(0).dims) {
      return "dimensions do not fit";
    }
  }
  if (!InRange(node.Number(Field::kDimensions), Node::Rank(node.operand(0)))) {
    return "its dimension is not there";
  }
  if (Why why = ScalarFunction(node, 0, 2 * node.count(), 1)) return why;
  return Results(node, node.count(), node.operand(0).dims);
}

Why Map(const Node& node) {
  if (node.count() == 0 || node.num_called() != 1) return "it maps arrays";
  if (Why why = Elementwise(node, node.count())) return why;
  if (!IsPermutation(node.List(Field::kDimensions), node.rank())) {
    return "dimensions do not fit";
  }
  return ScalarFunction(node, 0, node.count(), 1);
}

}  // namespace hloenv::outline_rules
