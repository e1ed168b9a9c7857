// SPDX-License-Identifier: Apache-2.0
// Uses of values, by which rewrites are identified.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

namespace hloenv {

struct Analysis;

// A use of a value: operand `operand` of instruction `user`, or the root of
// `computation` when `user` is kRoot.
struct Use {
  static constexpr int32_t kRoot = -1;
  int32_t computation;
  int32_t user;
  int32_t operand;

  friend bool operator<(const Use& a, const Use& b) {
    return std::tie(a.computation, a.user, a.operand) <
           std::tie(b.computation, b.user, b.operand);
  }
  friend bool operator==(const Use& a, const Use& b) {
    return std::tie(a.computation, a.user, a.operand) ==
           std::tie(b.computation, b.user, b.operand);
  }
};

// The uses of instruction number `original` by live instructions and the root,
// ascending.
std::vector<Use> UsesOf(const Analysis& analysis, int32_t original);

}  // namespace hloenv
