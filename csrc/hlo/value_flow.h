// SPDX-License-Identifier: Apache-2.0
// Sources and users of values, across tuples, fusions, calls, loops and
// conditionals.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/shape_util.h"

namespace hloenv {

// The instructions that may compute the value of `instruction` at `index`,
// found through instructions that only forward values: tuples, parameters of
// called computations, calls, fusions, loops and conditionals. Each once. A
// superset: includes values on paths that the program never takes.
std::vector<const xla::HloInstruction*> SourcesOf(
    const xla::HloInstruction& instruction, const xla::ShapeIndex& index = {});

// A part of the result of an instruction.
struct ValuePlace {
  const xla::HloInstruction* instruction;
  xla::ShapeIndex index;

  template <typename H>
  friend H AbslHashValue(H h, const ValuePlace& place) {
    return H::combine(std::move(h), place.instruction, place.index);
  }
  friend bool operator==(const ValuePlace& a, const ValuePlace& b) {
    return a.instruction == b.instruction && a.index == b.index;
  }
};

// `SourcesOf` of many values of a module that does not change: those of a chain
// of instructions that forward values are found once.
class SourceFinder {
 public:
  const std::vector<const xla::HloInstruction*>& Of(
      const xla::HloInstruction& instruction);

 private:
  using Sources = std::vector<const xla::HloInstruction*>;
  absl::flat_hash_map<ValuePlace, std::shared_ptr<const Sources>> known_;
};

// Whether the values of `instruction` are those of others, which `SourcesOf`
// finds.
bool OnlyForwards(const xla::HloInstruction& instruction);

// Whether `instruction` is a fusion, or an element of its result.
bool IsOfFusion(const xla::HloInstruction& instruction);

// The instruction that `instruction`, a fusion, an element of a tuple or a
// parameter of a fusion, passes the value of on; null for all others.
const xla::HloInstruction* PassedOnFrom(const xla::HloInstruction& instruction);

// What computes the value of `instruction`, inside its fusion if it has one:
// the last that `PassedOnFrom` leads to.
const xla::HloInstruction& ComputedBy(const xla::HloInstruction& instruction);

// What computes each result of `instruction`: one, or those of the elements of
// a fusion's tuple.
std::vector<const xla::HloInstruction*> ResultsOf(
    const xla::HloInstruction& instruction);

// The instructions that read the array that `instruction` computes, inside
// fusions where one reads it there. Each once for each fusion operand that it
// reads it through. A computation's root that is no fusion's counts as a user
// of itself.
std::vector<const xla::HloInstruction*> ReadersOf(
    const xla::HloInstruction& instruction);

}  // namespace hloenv
