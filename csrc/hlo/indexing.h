// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace xla {
class HloComputation;
class HloModule;
}  // namespace xla

namespace hloenv {

// Whether a gather or scatter has batching dimensions, on which XLA's gather
// and scatter simplifiers and its evaluator compute wrong values or crash.
bool HasBatchedIndexing(const xla::HloComputation& computation);
bool HasBatchedIndexing(const xla::HloModule& module);

}  // namespace hloenv
