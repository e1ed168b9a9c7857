// SPDX-License-Identifier: Apache-2.0
// Captures on a module that a compile is working on.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "rewrite/shadow.h"

namespace hloenv {

// A copy to capture on, and the way back from its instructions to the live
// ones, for Capture::ApplyInPlace.
struct LiveCopy {
  Module module;
  std::unique_ptr<xla::HloCloneContext> live_of;
};
LiveCopy CopyOf(xla::HloModule* live);

// Runs `pass` on `live`, but for the rewrites in `rejected`
// (Capture::Identity). `run` runs it as it is, where it makes none of those.
// Returns whether anything changed.
absl::StatusOr<bool> RunWithout(
    const absl::flat_hash_set<std::string>& rejected, const ShadowPass& pass,
    xla::HloModule* live, absl::FunctionRef<absl::StatusOr<bool>()> run);

}  // namespace hloenv
