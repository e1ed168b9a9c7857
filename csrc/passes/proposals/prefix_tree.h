// SPDX-License-Identifier: Apache-2.0
// Results for all prefixes of an array, which jax.lax.associative_scan computes
// by a tree of pairs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// The n rows of the arrays `elements` are joined, two at a time, to one result
// for each prefix: row i of it is the first element of join(... join(join(row
// 0, row 1), row 2) ..., row i).
struct PrefixTree {
  // An element of the first or the second operand of a join.
  struct Operand {
    size_t element;
    bool is_second;
  };
  int64_t size;
  // Arrays, and of each the dimension of its rows.
  std::vector<const xla::HloInstruction*> elements;
  std::vector<int64_t> dimensions;
  // Whether the result needs an element of the first operand, which then is
  // part of the state of a loop.
  std::vector<bool> is_state;
  // By element: the instruction that computes it for neighbours, of which
  // `operands` are slices.
  std::vector<const xla::HloInstruction*> joins;
  absl::flat_hash_map<const xla::HloInstruction*, Operand> operands;
  // Numbers that the joins multiply by, as broadcasts, of which each level of
  // the tree has others: 0.9 those of single rows, 0.81 those of pairs.
  using Constants =
      absl::flat_hash_map<const xla::HloInstruction*, const xla::Literal*>;
  std::vector<Constants> constants;
  // The dimension of the rows of each instruction of the joins.
  absl::flat_hash_map<const xla::HloInstruction*, int64_t> row_dimensions;
  // The last instructions of trees that it consists of, and its own.
  std::vector<const xla::HloInstruction*> roots;
};

// The tree whose last instruction is `root`, of single operations on elements;
// whether their order matters is another question (prefix_order.h).
std::optional<PrefixTree> PrefixTreeOf(const xla::HloInstruction& root);

}  // namespace hloenv
