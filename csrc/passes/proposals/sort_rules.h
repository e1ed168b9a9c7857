// SPDX-License-Identifier: Apache-2.0
// Rules of the candidate pass sort-forms, which are in several files.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/proposals/number_keys.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/primitive_util.h"
#include "xla/shape.h"

namespace hloenv {

// A sort by keys, and of other arrays by them.
struct KeyedSort {
  int64_t dimension = 0;
  bool is_descending = false;
  // For each replaced element of the result: the operand that is read for it,
  // by number; -1 for indices.
  std::vector<int64_t> reads;
  std::vector<xla::PrimitiveType> types;  // of these elements
};

// One in a module: the results that are used, and what they are made of.
struct FoundSort {
  KeyedSort sort;
  bool is_stable = false;
  std::vector<const xla::HloInstruction*> originals;
  std::vector<const xla::HloInstruction*> reads;  // the keys first
};

// The sort that `last` is the last of the results of; null if there is none.
const xla::HloInstruction* SortOf(const xla::HloInstruction& last);
// The sort of numbers that `last` is the last used result of, if it is in
// their order: ascending or descending, equal zeros, not-a-number as the
// largest.
std::optional<FoundSort> FindSort(const xla::HloInstruction& last,
                                  RuleContext& context);

inline bool IsFloat(const xla::Shape& shape) {
  return xla::primitive_util::IsFloatingPointType(shape.element_type());
}
// Whether integers in the order of the numbers need 64 bits.
bool HasWideKeys(xla::PrimitiveType type);
// Signed integers of 64 bits in the order of the sort; for types without wide
// keys, in the range of those of 32 bits.
xla::HloInstruction* SortKeyOf(xla::HloInstruction* x, bool is_descending,
                               Elementwise& build,
                               bool keeps_subnormal = false);

const Rule& NetworkRule();   // sort_networks.cc
const Rule& MaximaRule();    // top_k.cc
const Rule& ArgmaxesRule();  // top_k.cc
const Rule& WiderRule();     // top_k.cc
const Rule& SearchRule();    // search_loops.cc

}  // namespace hloenv
