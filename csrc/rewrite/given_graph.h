// SPDX-License-Identifier: Apache-2.0
// Alternative graphs that another program wrote (alternative.h), without a
// capture. Choices may read other alternatives.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/module.h"

namespace hloenv {

// InvalidModuleError unless the sites of `graph` have the numbers 0 to A - 1,
// each of at least one site, the sites of one number as many choices, at least
// 2, and each choice the shape of its site.
absl::Status CheckAlternativeGraph(const Module& graph);

// A new module that reads one choice at each site, without dead code.
// DecisionError unless there is one decision in range for each alternative.
// Requires CheckAlternativeGraph.
absl::StatusOr<Module> ApplyToGraph(const Module& graph,
                                    absl::Span<const int64_t> decisions);

}  // namespace hloenv
