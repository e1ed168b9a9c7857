// SPDX-License-Identifier: Apache-2.0
// Finds values that a module compares with a value selected from them.
//
// `x == max(x)`, which gradients of maximum contain, relies on both sides
// having the same bits. If x is computed twice, once for each side, the copies
// may round differently: LLVM may contract a multiplication and an addition in
// only one of them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

// Numbers of the operands that elements of the result are picked from, if the
// instruction rounds nothing; none otherwise.
std::vector<int64_t> PickedOperands(const xla::HloInstruction& instruction);

class SelfComparisons {
 public:
  // `module` must outlive this and not change.
  explicit SelfComparisons(const xla::HloModule& module);

  // Whether there are none.
  bool empty() const { return compared_.empty(); }

  // Whether `instruction`, inside a fusion or not, rounds floats, and both
  // sides of one comparison pick from its result: through operations that
  // round nothing, such as maximum, select, slices and reductions by maximum.
  bool IsCompared(const xla::HloInstruction& instruction) const {
    return compared_.contains(&instruction);
  }

  using Instructions = absl::flat_hash_set<const xla::HloInstruction*>;
  // Whether computing `copied` once more in one kernel may give the two sides
  // of a comparison different copies of one value. Both sets hold instructions
  // as `ComputedBy` gives them. The copies stand for the originals `replaced`,
  // which are among them, at all uses; the others stay for who else reads
  // them, or comes to read them when what rounds nothing is copied too.
  bool MaySplit(const Instructions& copied, const Instructions& replaced) const;

 private:
  void AddComparison(const xla::HloInstruction& comparison);

  // Compared values, with whether one side reads other elements than the other
  // (a reduction, a broadcast): one kernel then computes them twice.
  absl::flat_hash_map<const xla::HloInstruction*, bool> compared_;
};

}  // namespace hloenv
