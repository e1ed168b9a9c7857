// SPDX-License-Identifier: Apache-2.0
// Constants that text prints as "{...}", as XLA's dumps do from 11 elements on.
#pragma once

#include "absl/strings/string_view.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {

// Gives such constants of `hlo`, which was read from `text`, numbers that
// depend on their names alone: floats from 0.25 to 1.25, integers from 0 to 7,
// or 0 and 1 in two bits and less. XLA's parser has a counter of the whole
// process for them, so that the same text would be another module each time.
void FillLeftOutConstants(absl::string_view text, xla::HloModule* hlo);

}  // namespace hloenv
