// SPDX-License-Identifier: Apache-2.0
// Dense numbers for the instructions of a module that does not change.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

// Instruction number = first number of its computation + its local id. Numbers
// may have gaps; `size()` is one past the largest.
class InstructionIndex {
 public:
  explicit InstructionIndex(const xla::HloModule& module) {
    instructions_.reserve(module.instruction_count());
    for (xla::HloComputation* computation : module.computations()) {
      first_[computation] = static_cast<int32_t>(instructions_.size());
      numbers_[computation] = static_cast<int32_t>(computations_.size());
      computations_.push_back(computation);
      const size_t first = instructions_.size();
      for (xla::HloInstruction* instruction : computation->instructions()) {
        const size_t number = first + instruction->local_id();
        if (number >= instructions_.size()) {
          instructions_.resize(number + 1, nullptr);
        }
        instructions_[number] = instruction;
      }
    }
  }

  int32_t size() const { return static_cast<int32_t>(instructions_.size()); }
  // Null in a gap.
  xla::HloInstruction* at(int32_t number) const {
    return instructions_[number];
  }
  int32_t Of(const xla::HloInstruction* instruction) const {
    return first_.at(instruction->parent()) + instruction->local_id();
  }
  int32_t First(const xla::HloComputation* computation) const {
    return first_.at(computation);
  }

  const std::vector<xla::HloComputation*>& computations() const {
    return computations_;
  }
  bool Contains(const xla::HloComputation* computation) const {
    return numbers_.contains(computation);
  }
  // Position in `computations()`.
  int32_t NumberOf(const xla::HloComputation* computation) const {
    return numbers_.at(computation);
  }

 private:
  std::vector<xla::HloInstruction*> instructions_;
  std::vector<xla::HloComputation*> computations_;
  absl::flat_hash_map<const xla::HloComputation*, int32_t> first_;
  absl::flat_hash_map<const xla::HloComputation*, int32_t> numbers_;
};

}  // namespace hloenv
