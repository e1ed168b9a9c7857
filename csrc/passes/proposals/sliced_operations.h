// SPDX-License-Identifier: Apache-2.0
// Slices of a value, taken through the elementwise operations and broadcasts
// that compute it, so that XLA need not have the value, or see through slices
// of it, to fuse them.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// For each dimension the only index that is read, or kAll.
using FixedIndices = std::vector<int64_t>;
inline constexpr int64_t kAll = -1;
bool FixesNone(const FixedIndices& fixed);

// Elements of one of the leaves of SlicedOperations.
struct LeafRead {
  size_t leaf;
  FixedIndices fixed;
};

class SlicedOperations {
 public:
  struct Options {
    // Whether what is broadcast to at least twice its size is a leaf.
    bool ends_at_broadcasts = false;
    // Whether products that others read are computed once more. LLVM may round
    // the sum of one and others only once then, where it is not in memory: for
    // the largest of products that makes `sqrt(max(x * y) - x * y)` no number.
    bool repeats_products = true;
  };

  // Slices of `value` for `reader`, `count` of them, which fix the dimensions
  // that are not kAll here.
  SlicedOperations(const xla::HloInstruction& value,
                   const xla::HloInstruction& reader, const FixedIndices& fixed,
                   int64_t count, RuleContext& context, Options options);

  // What the slices are computed from.
  const std::vector<const xla::HloInstruction*>& leaves() const {
    return leaves_;
  }
  // The operations and broadcasts that are taken apart.
  const absl::flat_hash_set<const xla::HloInstruction*>& inner() const {
    return inner_;
  }
  // Which elements of the leaves the first slice is computed from.
  const std::vector<LeafRead>& reads() const { return reads_; }

  // The elements at these indices, without the dimensions fixed by them, from
  // the images of leaves().
  xla::HloInstruction* At(const FixedIndices& fixed,
                          absl::Span<xla::HloInstruction* const> leaves) const;
  // The same, from what the function returns for elements of leaves().
  using ElementsOf = absl::FunctionRef<xla::HloInstruction*(const LeafRead&)>;
  xla::HloInstruction* At(const FixedIndices& fixed, ElementsOf elements) const;

 private:
  using Seen = std::set<std::pair<const xla::HloInstruction*, FixedIndices>>;
  void Collect(const xla::HloInstruction& value, const FixedIndices& fixed,
               size_t most, Seen& seen);
  bool IsLeaf(const xla::HloInstruction& value,
              const FixedIndices& fixed) const;

  const xla::HloInstruction& value_;
  absl::flat_hash_set<const xla::HloInstruction*> inner_;
  absl::flat_hash_map<const xla::HloInstruction*, size_t> leaf_numbers_;
  std::vector<const xla::HloInstruction*> leaves_;
  std::vector<LeafRead> reads_;
};

}  // namespace hloenv
