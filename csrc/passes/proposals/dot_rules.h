// SPDX-License-Identifier: Apache-2.0
// Rules of the candidate pass dot-forms, which are in several files, and what
// they share.
#pragma once

#include <cstdint>
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

const Rule& MatrixFirstRule();  // few_row_dots.cc
const Rule& SeparateRule();     // few_row_dots.cc

}  // namespace hloenv
