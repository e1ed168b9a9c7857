// SPDX-License-Identifier: Apache-2.0
// What a reduction reads, computed in other sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

class ComputedTerms {
 public:
  // Whether a broadcast repeats numbers so that these need not be reshaped, and
  // what it is in the other sizes.
  using IsRepeated = std::function<bool(const xla::HloInstruction& broadcast)>;
  using Repeat = std::function<absl::StatusOr<xla::HloInstruction*>(
      const xla::HloInstruction& broadcast, xla::HloInstruction* numbers)>;

  // Of `value`, through elementwise operations.
  ComputedTerms(const xla::HloInstruction& value,
                const IsRepeated& is_repeated);

  // The arrays, and numbers that are repeated, each once.
  const std::vector<const xla::HloInstruction*>& leaves() const {
    return leaves_;
  }
  // The place of a number among them, which is added if it is new.
  size_t Place(const xla::HloInstruction& number);
  // Whether there are operations; whether nothing but each other and the
  // reduction reads them.
  bool is_computed() const { return !inner_.empty(); }
  bool is_read_once() const;
  // Whether it is computed by additions and products alone, as a variance is,
  // none by an array that is broadcast.
  bool IsStatistic() const;
  // Whether all arrays are in memory, so that a reshape of them is free.
  bool are_in_memory() const { return are_in_memory_; }
  // Whether it repeats more than single numbers.
  bool repeats_arrays() const { return repeats_arrays_; }

  // Takes the value as it is.
  void TakeWhole() {
    inner_.clear();
    leaves_ = {&value_};
  }

  // In other sizes, from the images of the leaves.
  absl::StatusOr<xla::HloInstruction*> Build(
      absl::Span<const int64_t> sizes, absl::Span<xla::HloInstruction* const> x,
      const Repeat& repeat) const;

 private:
  class Builder;
  bool IsInner(const xla::HloInstruction& value) const;
  void Collect(const xla::HloInstruction& value, const IsRepeated& is_repeated);

  const xla::HloInstruction& value_;
  absl::flat_hash_set<const xla::HloInstruction*> inner_;
  std::vector<const xla::HloInstruction*> leaves_;
  bool are_in_memory_ = true;
  bool repeats_arrays_ = false;
};

}  // namespace hloenv
