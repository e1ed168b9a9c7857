// SPDX-License-Identifier: Apache-2.0
// Instructions that a pass changed in place: is their value still the same?
//
// A pass may take a factor out of one instruction and put it into another one:
//
//   before                        after
//   c = convolution(x, k)         k2 = multiply(k, two)
//   m = multiply(c, two)          c  = convolution(x, k2)   // changed in place
//   t = transpose(m)              t  = transpose(c)         // reads c for m
//
// `c` has another value now, and only `t` shows that all is well. So an
// instruction that was changed in place counts as equal to its original only if
// something unchanged shows it:
//
// * it differs in nothing that makes its value (layout, sharding, control
//   dependencies, ...), and neither do its operands, or
// * unchanged instructions lead from it to the computation's root, or to an
//   effect, by operands that the pass did not exchange; to a tuple, from each
//   element that is read. Since the pass as a whole is right, the value is: no
//   pass relies on what one of these instructions does not tell apart (the sign
//   that a comparison loses, the element that a slice drops), since it would
//   have to know all readers, and then changes them.
//
// The same goes for a value that the pass changed in place and then replaced by
// one that it declared equal to it.
//
// Otherwise the unchanged instructions below it hold values of the pass's own,
// up to those uses whose user is shown to be right in the same way. They have
// to come with the replacement, so that all of it is one decision.
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
  // Operands (user, number) that read another value than the original's image.
  const absl::flat_hash_set<std::pair<int32_t, int64_t>>& rewired;
  // Survivors that read a value in the place of one that the pass may have
  // changed first.
  const std::vector<int32_t>& doubtful;
  absl::FunctionRef<bool(const xla::HloComputation*,
                         const xla::HloComputation*)>
      same_computation;
};

// Numbers of the survivors whose values are the pass's own, ascending.
std::vector<int32_t> SurvivorsOfOtherValue(const ChangedComputation& changed);

}  // namespace hloenv
