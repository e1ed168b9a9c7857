// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace hloenv {

// Strings by number, in order of first appearance.
class NameTable {
 public:
  explicit NameTable(std::vector<std::string>* names) : names_(*names) {}

  int32_t IndexOf(absl::string_view name) {
    auto [it, is_new] =
        indices_.try_emplace(name, static_cast<int32_t>(names_.size()));
    if (is_new) names_.emplace_back(name);
    return it->second;
  }

 private:
  std::vector<std::string>& names_;
  absl::flat_hash_map<std::string, int32_t> indices_;
};

}  // namespace hloenv
