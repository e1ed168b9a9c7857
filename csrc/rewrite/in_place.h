// SPDX-License-Identifier: Apache-2.0
// Finds instructions whose value a pass changed in place.
//
// A pass may take a factor out of one instruction and put it into another one:
//
//   before                        after
//   c = convolution(x, k)         k2 = multiply(k, two)
//   m = multiply(c, two)          c  = convolution(x, k2)   // changed in place
//   t = transpose(m)              t  = transpose(c)         // reads c for m
//
// The value of `c` has changed; only `t` has the same value as before. So an
// instruction that was changed in place counts as equal to its original only if
// it is verified:
//
// * it and its operands differ only in properties that do not affect the value
//   (layout, sharding, control dependencies, ...), or
// * a path of unchanged instructions and operands leads from it to the
//   computation's root or to a side effect; for a tuple, from each element that
//   is read. The output is correct because the pass is, so the value is the
//   same. This assumes that the pass does not rely on instructions on the path
//   that lose information (a comparison loses the sign, a slice drops
//   elements): to rely on them it would have to know all users of the value,
//   and passes that do change these users.
//
// The same applies to a value that the pass changed in place and then replaced
// with one that it declared equal.
//
// Otherwise the users of the instruction, although unchanged, have new values,
// up to uses whose user is verified. They must be part of the replacement, so
// that all of it is one decision.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "hlo/analysis.h"

namespace hloenv {

// One computation before and after a pass.
struct ChangedComputation {
  const Analysis& analysis;
  int32_t number;  // of the computation, in `analysis`
  const xla::HloComputation* image;
  // By original instruction number: its image, null if it was removed.
  const std::vector<const xla::HloInstruction*>& image_of;
  // By original instruction number: unchanged but for its operands.
  const std::vector<uint8_t>& survives;
  // Operands (user, number) that are not the image of the original's operand.
  const absl::flat_hash_set<std::pair<int32_t, int64_t>>& rewired;
  // Survivors that read a replacement of a value that the pass may have changed
  // in place before it declared the two equal.
  const std::vector<int32_t>& doubtful;
  absl::FunctionRef<bool(const xla::HloComputation*,
                         const xla::HloComputation*)>
      same_computation;
};

// Numbers of the survivors that may have a new value, ascending.
std::vector<int32_t> SurvivorsWithNewValue(const ChangedComputation& changed);

}  // namespace hloenv
