// SPDX-License-Identifier: Apache-2.0
// Whether the joins of a tree of prefixes may be made in another order.
#pragma once

#include "passes/proposals/prefix_tree.h"

namespace hloenv {

// Whether joining pairs, and pairs of pairs, is joining one row after the
// other: XLA's evaluator finds that (x y) z = x (y z) for made-up numbers.
bool IsOrderFree(const PrefixTree& tree);

}  // namespace hloenv
