// SPDX-License-Identifier: Apache-2.0
#include "support/names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"

namespace hloenv {

std::string NormalName(absl::string_view name) {
  std::string result;
  for (char c : name) {
    if (absl::ascii_isalnum(c)) result += absl::ascii_tolower(c);
  }
  return result;
}

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace hloenv
