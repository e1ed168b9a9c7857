// SPDX-License-Identifier: Apache-2.0
// Value ranges of a module's inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// For each flat leaf of the module's inputs, an exclusive upper bound (>= 1) of
// its meaningful values, if they are used as indices (gather, scatter, dynamic
// slices) or compared with an iota (one-hot labels); none for leaves for which
// no such use is found.
std::vector<std::optional<int64_t>> IndexBounds(const xla::HloModule& module);

// For each such leaf whether a root or a logarithm is taken of its values, or
// of sums and positive multiples of them, as of the variances of a
// normalization and of an optimizer's second moments.
std::vector<bool> PositiveLeaves(const xla::HloModule& module);

}  // namespace hloenv
