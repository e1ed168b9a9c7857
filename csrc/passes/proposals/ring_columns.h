// SPDX-License-Identifier: Apache-2.0
// Which arrays are the same polynomials of others, row by row.
//
// Sums and products of rows are computed of random elements of a finite field.
// Two that have the same results are the same polynomials, but for a chance of
// their degree in 2^61. Nothing is subtracted, so that no terms cancel out:
// what rounds away, or is no number, stays.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// Integers modulo a prime, of which no power of two that occurs is 1.
class FieldElement {
 public:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 31;

  FieldElement() = default;
  explicit FieldElement(uint64_t number) : value_(number % kPrime) {}

  FieldElement operator+(FieldElement other) const;
  FieldElement operator*(FieldElement other) const;
  bool operator==(FieldElement other) const { return value_ == other.value_; }
  bool operator!=(FieldElement other) const { return value_ != other.value_; }

 private:
  uint64_t value_ = 0;
};

// What is computed alike in all elements of a row: an element of the field for
// each row, a single one where all are equal.
struct RingColumn {
  // Labels of dimensions that are not those of some array: of one element,
  // which may be the only row, and along which all elements are equal.
  static constexpr int64_t kUnit = -1;
  static constexpr int64_t kEqual = -2;

  std::vector<int64_t> labels;
  std::vector<FieldElement> rows;
  bool has_rows = true;
  // Whether it is the sum over the dimensions that are to be reduced.
  bool is_sum = false;

  FieldElement At(int64_t row) const { return rows[has_rows ? row : 0]; }
  bool IsZero() const { return !has_rows && At(0) == FieldElement(); }
};

// The columns of arrays, whose dimensions are labelled by those of one array,
// that of the rows by `row_label`.
class RingColumns {
 public:
  // Labels of dimensions over which arrays may be summed up, all at once.
  RingColumns(RuleContext* context, int64_t row_label,
              std::vector<int64_t> reduced)
      : context_(context),
        row_label_(row_label),
        reduced_(std::move(reduced)) {}
  // Adds to what `base` has, which must outlive this.
  explicit RingColumns(const RingColumns* base)
      : context_(base->context_),
        row_label_(base->row_label_),
        reduced_(base->reduced_),
        base_(base) {}

  // The known column of an array; null if there is none.
  const RingColumn* Find(const xla::HloInstruction& array) const;
  // Makes up the column of an array, one of whose dimensions is that of rows.
  void Draw(const xla::HloInstruction& array, std::vector<int64_t> labels);
  // Computes the columns of all that is computed of `arrays`, by sums and
  // products, and of what is known. False if this takes too long.
  bool Follow(absl::Span<const xla::HloInstruction* const> arrays);
  // What `Follow` has computed, in post order.
  const std::vector<const xla::HloInstruction*>& followed() const {
    return followed_;
  }
  // What it has done so far: rows that were computed, and for each instruction
  // that was tried as many as take its time.
  int64_t work() const { return num_rows_ + kRowsOfTry * num_tried_; }
  static constexpr int64_t kRowsOfTry = 64;

 private:
  // As `Find`; adds the column of a constant.
  const RingColumn* Operand(const xla::HloInstruction& array);
  std::optional<RingColumn> Computed(const xla::HloInstruction& instruction);
  // Whether a dimension is that of the rows, also of one row.
  bool MayBeRows(const RingColumn& column, int64_t dimension) const;
  // Elements in another order, some of them, or with zeros between them.
  std::optional<RingColumn> Moved(const xla::HloInstruction& instruction,
                                  const RingColumn& operand) const;
  std::optional<RingColumn> Joined(
      const xla::HloInstruction& instruction,
      absl::Span<const RingColumn* const> operands) const;
  std::optional<RingColumn> Reshaped(const xla::HloInstruction& instruction,
                                     const RingColumn& operand) const;
  std::optional<RingColumn> Reduced(const xla::HloInstruction& instruction,
                                    const RingColumn& operand) const;

  RuleContext* const context_;
  const int64_t row_label_;
  const std::vector<int64_t> reduced_;
  const RingColumns* const base_ = nullptr;
  absl::flat_hash_map<const xla::HloInstruction*, RingColumn> columns_;
  std::vector<const xla::HloInstruction*> followed_;
  int64_t num_rows_ = 0;
  int64_t num_tried_ = 0;
};

}  // namespace hloenv
