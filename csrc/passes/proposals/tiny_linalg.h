// SPDX-License-Identifier: Apache-2.0
// Linear algebra of many tiny matrices as arithmetic over all of them: the
// elements of one row and column are one array, of which LLVM makes vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "passes/proposals/math_rules.h"
#include "passes/proposals/number_keys.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/shape.h"

namespace hloenv {

// The instruction of a row and a column, for all matrices: rank 1.
using Elements = std::vector<std::vector<xla::HloInstruction*>>;

// Adds matrices' elements to a computation, and matrices of elements.
class Tiny {
 public:
  Tiny(xla::HloComputation* computation, const xla::Shape& matrices);

  static int64_t RowsOf(const xla::Shape& shape) {
    return shape.dimensions(shape.dimensions().size() - 2);
  }
  static int64_t ColumnsOf(const xla::Shape& shape) {
    return shape.dimensions().back();
  }

  Elementwise& build() { return build_; }
  Elements ElementsOf(xla::HloInstruction* x);
  // `parts` one after the other, as the last dimensions of `shape`.
  xla::HloInstruction* Joined(const std::vector<xla::HloInstruction*>& parts,
                              const xla::Shape& shape);

 private:
  const int64_t count_;
  Elementwise build_;
};

// Results, each of some elements for all matrices.
using Results = std::vector<std::vector<xla::HloInstruction*>>;
// All of them, one after the other.
std::vector<xla::HloInstruction*> Flat(const Results& results);

struct Solve {
  bool is_left = false;
  bool is_lower = false;
  bool is_transposed = false;
  bool has_unit_diagonal = false;
};
// x, where a * x = b, or x * a = b, and a is triangular.
absl::StatusOr<Results> Solved(const Solve& solve, Tiny& tiny, Arrays in);
// The triangular factor beside the other triangle as it was, and the first
// step that failed, from 1 on, or 0.
absl::StatusOr<Results> CholeskyOf(bool is_lower, Tiny& tiny, Arrays in);
// Both factors in one matrix, the rows that were swapped at each step, from 1
// on, and the first step that failed.
absl::StatusOr<Results> LuOf(Tiny& tiny, Arrays in);

}  // namespace hloenv
