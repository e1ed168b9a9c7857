// SPDX-License-Identifier: Apache-2.0
// The rules for single instructions (rules*.cc): the subset of HLO's rules
// which ensures that XLA can construct and verify the instruction without a
// crash. XLA's verifier checks the rest.
#pragma once

#include <cstdint>

#include "hlo/outline/outline.h"
#include "xla/primitive_util.h"

namespace hloenv::outline_rules {

using Opcode = xla::HloOpcode;

// The reason for a rejection, a static string; null if there is none.
using Why = const char*;

inline constexpr int64_t kMaxWindow = int64_t{1} << 31;

// An instruction with what it refers to.
class Node {
 public:
  Node(const Outline& outline, const OutlineComputation& computation,
       const OutlineInstruction& self)
      : outline_(outline), computation_(computation), self_(self) {}

  const OutlineInstruction& self() const { return self_; }
  const OutlineShape& shape() const { return self_.shape; }
  int64_t rank() const { return Rank(self_.shape); }
  int64_t count() const { return static_cast<int64_t>(self_.operands.size()); }
  const OutlineShape& operand(int64_t i) const {
    return computation_.instructions[self_.operands[i]].shape;
  }
  int64_t num_called() const {
    return static_cast<int64_t>(self_.called.size());
  }
  const OutlineComputation& called(int64_t i) const {
    return outline_.computations[self_.called[i]];
  }
  const OutlineShape& parameter(int64_t of, int64_t number) const {
    const OutlineComputation& computation = called(of);
    return computation.instructions[computation.parameters[number]].shape;
  }
  static int64_t Rank(const OutlineShape& shape) {
    return static_cast<int64_t>(shape.dims.size());
  }
  // Empty if the attribute is missing.
  const Ints& List(Field field) const {
    static const Ints* const kNone = new Ints();
    const Ints* found = self_.Find(field);
    return found == nullptr ? *kNone : *found;
  }
  // The single number of an attribute; -1 if it is missing.
  int64_t Number(Field field) const {
    const Ints& list = List(field);
    return list.size() == 1 ? list[0] : -1;
  }

 private:
  const Outline& outline_;
  const OutlineComputation& computation_;
  const OutlineInstruction& self_;
};

inline bool InRange(int64_t value, int64_t size) {
  return value >= 0 && value < size;
}

// Different numbers from 0 to `size`.
inline bool AreDims(const Ints& dims, int64_t size) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!InRange(dims[i], size)) return false;
    for (size_t j = 0; j < i; ++j) {
      if (dims[i] == dims[j]) return false;
    }
  }
  return true;
}

inline bool IsPermutation(const Ints& dims, int64_t size) {
  return static_cast<int64_t>(dims.size()) == size && AreDims(dims, size);
}

inline bool AreArrays(const Node& node) {
  if (!node.shape().IsArray()) return false;
  for (int64_t i = 0; i < node.count(); ++i) {
    if (!node.operand(i).IsArray()) return false;
  }
  return true;
}

inline Why NeedArrays(const Node& node, int64_t count) {
  if (node.count() != count) return "it has another number of operands";
  if (!AreArrays(node)) return "it works on arrays";
  return nullptr;
}

inline Why Elementwise(const Node& node, int64_t count) {
  if (Why why = NeedArrays(node, count)) return why;
  for (int64_t i = 0; i < count; ++i) {
    if (node.operand(i).dims != node.shape().dims) {
      return "operands and result have other dimensions";
    }
  }
  return nullptr;
}

// An array for one result, a tuple of arrays for several; all with `dims`.
Why Results(const Node& node, int64_t results, const Ints& dims);

// Elementwise operations, and those that move elements.
Why Unary(const Node& node);
Why Binary(const Node& node);
Why Select(const Node& node);
Why Clamp(const Node& node);
Why Compare(const Node& node);
Why Complex(const Node& node);
Why Copy(const Node& node);
Why BitcastConvert(const Node& node);
Why Bitcast(const Node& node);
Why Broadcast(const Node& node);
Why Reshape(const Node& node);
Why Transpose(const Node& node);
Why Reverse(const Node& node);
Why Iota(const Node& node);
Why Parameter(const Node& node);
Why Constant(const Node& node);
Why GetTupleElement(const Node& node);
Why Tuple(const Node& node);
Why Concatenate(const Node& node);
Why Slice(const Node& node);
Why DynamicSlice(const Node& node);
Why DynamicUpdateSlice(const Node& node);
Why Pad(const Node& node);

// Those that compute from several elements.
Why Reduce(const Node& node);
Why ReduceWindow(const Node& node);
Why SelectAndScatter(const Node& node);
Why Dot(const Node& node);
Why Convolution(const Node& node);
Why Gather(const Node& node);
Why Scatter(const Node& node);
Why Sort(const Node& node);
Why Map(const Node& node);
Why Rng(const Node& node);
Why RngBitGenerator(const Node& node);
Why Cholesky(const Node& node);
Why TriangularSolve(const Node& node);
Why Fft(const Node& node);
Why TopK(const Node& node);
Why ReducePrecision(const Node& node);
Why DimensionSize(const Node& node);
Why Id(const Node& node);
Why BatchNorm(const Node& node);

// Those that call computations of any shape.
Why Call(const Node& node);
Why While(const Node& node);
Why Conditional(const Node& node);
Why CustomCall(const Node& node);
Why Fusion(const Node& node);
Why AfterAll(const Node& node);

}  // namespace hloenv::outline_rules
