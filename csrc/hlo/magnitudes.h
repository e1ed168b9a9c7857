// SPDX-License-Identifier: Apache-2.0
// Finds extreme floats in a module: infinities and huge masks among its
// constants, and values computed from them.
//
// A magnitude is moderate when it is zero or lies between the square roots of
// the smallest normal and of the largest finite number of its type (float32:
// 1e-19 to 1e19), and of each type that the module converts to, so that no
// product of two overflows or underflows. Arguments of the module and values
// computed from moderate values count as moderate, but for what divisions,
// logarithms, sums and the like make of constants alone, as log(0).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/known_values.h"
#include "hlo/value_flow.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

// The kinds of extreme values that an array may contain.
struct Extremes {
  bool positive = false;  // larger than moderate ones, infinity included
  bool negative = false;  // the same below zero
  bool small = false;     // nearer to zero than moderate ones, but not zero
  bool nan = false;       // not a number

  // A sum or product with one of them is no other number.
  bool large() const { return positive || negative || nan; }
  bool any() const { return large() || small; }
  Extremes operator|(const Extremes& other) const {
    return {positive || other.positive, negative || other.negative,
            small || other.small, nan || other.nan};
  }
  bool operator==(const Extremes& other) const {
    return positive == other.positive && negative == other.negative &&
           small == other.small && nan == other.nan;
  }
};

class Magnitudes {
 public:
  // `module` must outlive this and not change. `known` has its values.
  Magnitudes(const xla::HloModule& module, KnownValues* known);

  // Of the elements of a float array, those of the real and imaginary parts.
  Extremes Of(const xla::HloInstruction& instruction) const;

 private:
  Extremes Known(const xla::HloInstruction& instruction) const;
  Extremes Computed(const xla::HloInstruction& instruction) const;
  Extremes OfOperation(const xla::HloInstruction& instruction) const;
  Extremes Reduced(const xla::HloInstruction& instruction) const;

  absl::flat_hash_map<const xla::HloInstruction*, Extremes> extremes_;
  // Of a select whose predicate the module determines, the operand that it is;
  // of one that has a pole, the operand elsewhere.
  absl::flat_hash_map<const xla::HloInstruction*, const xla::HloInstruction*>
      taken_;
  // Of instructions that pass values on.
  mutable SourceFinder sources_;
};

}  // namespace hloenv
