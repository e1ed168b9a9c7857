// SPDX-License-Identifier: Apache-2.0
// Workaround for XLA bugs in parsing constants of HLO text.
//
// XLA prints minus zero as "-0", which its parser reads as the integer 0. If
// the real part of a complex number is NaN, the parser sets the imaginary part
// to that NaN too.
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

// Text that XLA's parser reads correctly, except NaNs of complex constants.
ReadableText MakeReadable(absl::string_view text);

// Writes the NaNs into a newly parsed module, whose instructions are still in
// text order. False if a NaN has no matching constant.
[[nodiscard]] bool SetNans(const std::vector<ComplexNan>& nans,
                           xla::HloModule* module);

}  // namespace hloenv
