// SPDX-License-Identifier: Apache-2.0
// Loops that search a table for each of many numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/proposals/loop_rules.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// A binary search.
struct Search {
  FoundLoop found;
  // Elements of the state: the two bounds, which are arrays of one shape.
  int64_t low;
  int64_t high;
  const xla::HloInstruction* gather;
  // What is computed of the table's numbers alone: the last such instruction.
  const xla::HloInstruction* number;
  const xla::HloInstruction* decision;  // the comparison
  // Of each iteration that selects, the places in the table, in the order of
  // the decisions before: the first half is for a first one that is true.
  std::vector<std::vector<int64_t>> places;
};

// The search that `last` is the last used result of.
std::optional<Search> FindSearch(const xla::HloInstruction& last,
                                 RuleContext& context);

}  // namespace hloenv
