// SPDX-License-Identifier: Apache-2.0
// Comparison of names, for suggestions.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace hloenv {

// Letters and digits in lower case: people mix up "-", "_" and capitals.
std::string NormalName(absl::string_view name);

// Letters to insert, delete or replace.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace hloenv
