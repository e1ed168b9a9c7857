// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace xla {
class HloComputation;
class HloModule;
}  // namespace xla

namespace hloenv {

// Whether a gather or scatter has batching dimensions, which XLA's simplifiers
// of these and its evaluator get wrong or die of.
bool HasBatchedIndexing(const xla::HloComputation& computation);
bool HasBatchedIndexing(const xla::HloModule& module);

}  // namespace hloenv
