// SPDX-License-Identifier: Apache-2.0
// Rules of the candidate pass dot-forms, which are in several files, and what
// they share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "passes/proposals/labelled.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// A dot with labelled dimensions: those of both operands that are summed over
// have the labels in `summed`.
struct LabelledDot {
  std::string left;
  std::string right;
  std::string result;
  std::string summed;
  std::vector<int64_t> summed_sizes;
  int64_t batch = 1;  // numbers of products of matrices,
  int64_t terms = 1;  // of terms of each sum,
  int64_t free = 1;   // and of sums of each product
};

// Whether a rule may rewrite `instruction`: a dot of two static arrays with
// elements, with no algorithm of its own.
bool IsPlainDot(const xla::HloInstruction& instruction);
LabelledDot LabelledDotOf(const xla::HloInstruction& dot);

// An operand of a dot as it is in memory: what is transposed, if it is a
// transposition, with the labels of its own dimensions.
struct StoredOperand {
  const xla::HloInstruction* value;
  std::string labels;
};
// Nothing if the value in memory is not row-major.
std::optional<StoredOperand> StoredOperandOf(const xla::HloInstruction& operand,
                                             const std::string& labels);
// The product of the operands of `dot`, the second first, with the labels
// `result` except those of size 1 that `left` lacks.
Labelled SwappedDotOf(const xla::HloInstruction& dot, const Labelled& right,
                      const Labelled& left, const std::string& result);

const Rule& MatrixFirstRule();      // few_row_dots.cc
const Rule& SeparateRule();         // few_row_dots.cc
const Rule& SwappedRule();          // crossed_dots.cc
const Rule& SecondFirstRule();      // crossed_dots.cc
const Rule& FirstTransposedRule();  // crossed_dots.cc
const Rule& AsStoredRule();         // crossed_dots.cc
const Rule& BatchLoopRule();        // dot_loops.cc
const Rule& FlatRule();             // flat_dots.cc
const Rule& NarrowRule();           // narrow_dots.cc
const Rule& ShiftedRule();          // narrow_dots.cc
const Rule& TruthRule();            // narrow_dots.cc
const Rule& OneHotRule();           // one_hot_dots.cc
const Rule& SparseRule();           // sparse_dots.cc
const Rule& WideRule();             // wide_dots.cc

}  // namespace hloenv
