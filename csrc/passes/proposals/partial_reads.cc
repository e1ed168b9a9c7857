// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/partial_reads.h"

#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// What a reader of a value does with it.
enum class Reading {
  kEnds,      // nothing that matters for a rule
  kPassesOn,  // gives it to its own readers
  kFails,
};

// Whether no reader of `value` fails, also where functions that JAX calls, such
// as that of a sort, return it or get it.
bool AllReaders(const HloInstruction& value, bool may_be_output,
                absl::FunctionRef<Reading(const HloInstruction& user,
                                          const HloInstruction& read)>
                    reading) {
  constexpr size_t kMaxValues = 64;
  std::vector<const HloInstruction*> values = {&value};
  for (size_t i = 0; i < values.size(); ++i) {
    if (values.size() > kMaxValues) return false;
    const HloInstruction& read = *values[i];
    if (read.IsRoot()) {
      if (read.parent()->IsEntryComputation() && !may_be_output) return false;
      for (const HloInstruction* call : read.parent()->caller_instructions()) {
        if (call->opcode() != HloOpcode::kCall) return false;
        values.push_back(call);
      }
    }
    for (const HloInstruction* user : read.users()) {
      if (user->opcode() == HloOpcode::kCall) {
        for (const int64_t operand : user->OperandIndices(&read)) {
          values.push_back(user->to_apply()->parameter_instruction(operand));
        }
        continue;
      }
      const Reading found = reading(*user, read);
      if (found == Reading::kFails) return false;
      if (found == Reading::kPassesOn) values.push_back(user);
    }
  }
  return true;
}

// Whether XLA, if it fuses `value` with its readers, computes it for many of
// their elements again.
bool IsRepeated(const HloInstruction& value) {
  constexpr int64_t kManyTimes = 16;
  const int64_t count = xla::ShapeUtil::ElementsIn(value.shape());
  return !AllReaders(
      value, /*may_be_output=*/true,
      [count](const HloInstruction& user, const HloInstruction&) {
        if (!user.shape().IsArray()) return Reading::kEnds;
        const int64_t elements = xla::ShapeUtil::ElementsIn(user.shape());
        const bool is_spread = user.opcode() == HloOpcode::kBroadcast ||
                               user.opcode() == HloOpcode::kGather;
        if (is_spread && elements >= kManyTimes * count) return Reading::kFails;
        const bool is_fused = user.IsElementwise() || is_spread ||
                              user.opcode() == HloOpcode::kReshape;
        return is_fused ? Reading::kPassesOn : Reading::kEnds;
      });
}

// How many indices along a dimension a slice or gather of `value` reads, if it
// is known which; nothing for other readers.
std::optional<int64_t> NumReadBy(const HloInstruction& user,
                                 const HloInstruction& value, int64_t dimension,
                                 RuleContext& context) {
  if (user.operand(0) != &value || user.OperandIndices(&value).size() > 1) {
    return std::nullopt;
  }
  if (user.opcode() == HloOpcode::kSlice) {
    return user.shape().dimensions(dimension);
  }
  if (user.opcode() == HloOpcode::kDynamicSlice) {
    const HloInstruction& start = *user.operand(1 + dimension);
    if (context.Known(start).literal == nullptr) return std::nullopt;
    return user.shape().dimensions(dimension);
  }
  if (user.opcode() != HloOpcode::kGather ||
      context.Known(*user.operand(1)).literal == nullptr) {
    return std::nullopt;
  }
  // Of that dimension alone.
  const xla::Shape& shape = value.shape();
  for (int64_t d = 0; d < RankOf(shape); ++d) {
    if (d != dimension && user.gather_slice_sizes()[d] != shape.dimensions(d)) {
      return std::nullopt;
    }
  }
  return xla::ShapeUtil::ElementsIn(user.shape()) *
         shape.dimensions(dimension) / xla::ShapeUtil::ElementsIn(shape);
}

}  // namespace

bool IsReadInPart(const HloInstruction& value, int64_t dimension,
                  RuleContext& context) {
  int64_t num_read = 0;
  const bool is_in_part =
      AllReaders(value, /*may_be_output=*/false,
                 [&](const HloInstruction& user, const HloInstruction& read) {
                   if (user.opcode() == HloOpcode::kReverse)
                     return Reading::kPassesOn;
                   const std::optional<int64_t> found =
                       NumReadBy(user, read, dimension, context);
                   if (!found.has_value() || IsRepeated(user))
                     return Reading::kFails;
                   num_read += *found;
                   return Reading::kEnds;
                 });
  return is_in_part && 2 * num_read <= value.shape().dimensions(dimension);
}

}  // namespace hloenv
