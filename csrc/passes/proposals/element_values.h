// SPDX-License-Identifier: Apache-2.0
// Single elements of what a kernel computes, of made-up operands.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/literal.h"

namespace hloenv {

// Elements of instructions, computed by XLA's evaluator from those that they
// need: of large arrays, a few. Floats are computed in 64 bits, so that what
// the simplifier does to constants is seen, and not the rounding of results.
class ElementValues {
 public:
  using Element = std::shared_ptr<const xla::Literal>;

  // Made-up operands: finite numbers of several sizes, then NaN, then infinite
  // ones; of integers, small ones and any.
  static constexpr int kFiniteDraws = 12;
  static constexpr int kDraws = kFiniteDraws + 2;

  // `given` are the arrays whose elements are made up, by `draw`.
  ElementValues(const std::vector<const xla::HloInstruction*>& given, int draw)
      : given_(given.begin(), given.end()), draw_(draw) {}

  // The element at a place in the order of rows, as a scalar; null if an
  // operation is not known, or it takes too long.
  Element Of(const xla::HloInstruction& array, int64_t place);
  // Whether that element and one of a given array are equal.
  enum class Likeness { kEqual, kDifferent, kUnknown };
  Likeness Compared(const xla::HloInstruction& array, int64_t place,
                    const xla::HloInstruction& given, int64_t given_place);
  // The places of a given array whose elements have been needed.
  std::vector<int64_t> PlacesOf(const xla::HloInstruction& given) const;

 private:
  Element Computed(const xla::HloInstruction& array, int64_t place);
  Element MadeUp(const xla::HloInstruction& array, int64_t place) const;
  Element OfElements(const xla::HloInstruction& operation, int64_t place);

  const absl::flat_hash_set<const xla::HloInstruction*> given_;
  const int draw_;
  int64_t steps_ = 0;
  double largest_constant_ = 1;
  absl::flat_hash_map<std::pair<const xla::HloInstruction*, int64_t>, Element>
      known_;
};

}  // namespace hloenv
