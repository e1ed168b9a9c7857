// SPDX-License-Identifier: Apache-2.0
// Captures on a module that is being compiled.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "rewrite/shadow.h"

namespace hloenv {

// A copy to capture on, and the map from its instructions to the live ones, for
// Capture::ApplyInPlace.
struct LiveCopy {
  Module module;
  std::unique_ptr<xla::HloCloneContext> live_of;
};
LiveCopy CopyOf(xla::HloModule* live);

// Runs `pass` on `live` without the rewrites in `rejected` (Capture::Identity).
// Calls `run`, which runs the pass unchanged, if it makes none of these.
// Returns whether the module changed.
absl::StatusOr<bool> RunWithout(
    const absl::flat_hash_set<std::string>& rejected, const ShadowPass& pass,
    xla::HloModule* live, absl::FunctionRef<absl::StatusOr<bool>()> run);

}  // namespace hloenv
