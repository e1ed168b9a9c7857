// SPDX-License-Identifier: Apache-2.0
// What XLA's parser misreads in the constants of HLO text.
//
// XLA prints minus zero as "-0", which its parser takes for the integer 0. And
// of a complex number whose real part is NaN, it reads the imaginary part as
// that NaN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// A component of an element of a complex constant that is NaN.
struct ComplexNan {
  int64_t constant;  // counts the module's complex constants, in their order
  int64_t element;   // in the order of the text
  bool is_imaginary;
  bool is_negative;
  uint64_t payload;  // 0: XLA's usual NaN
};

struct ReadableText {
  std::string text;  // with 0 in the place of `nans`, and "-0.0" for "-0"
  std::vector<ComplexNan> nans;
};

// Text that XLA's parser reads right, but for NaNs of complex constants.
ReadableText MakeReadable(absl::string_view text);

// Writes the NaNs into a module just parsed, in whose computations nothing has
// moved yet. False if some have no constant to go to.
[[nodiscard]] bool SetNans(const std::vector<ComplexNan>& nans,
                           xla::HloModule* module);

}  // namespace hloenv
