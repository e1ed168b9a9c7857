// SPDX-License-Identifier: Apache-2.0
// What values the inputs of a module may sensibly have.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// For each flat leaf of the module's inputs, an exclusive upper bound of the
// values that make sense in it because they index something (gather, scatter,
// dynamic slices) or are compared with an iota (one-hot labels), as far as that
// can be followed back to the leaf; none for other leaves. At least 1.
std::vector<std::optional<int64_t>> IndexBounds(const xla::HloModule& module);

}  // namespace hloenv
