// SPDX-License-Identifier: Apache-2.0
// The compile target: the host, or a GPU, which need not be present.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

class Target {
 public:
  // "cpu", one of GpuTargetNames, or the text of a GpuTargetConfigProto.
  // Errors: TargetError when it is none of them, or when this XLA has no
  // compiler for it.
  static absl::StatusOr<Target> Parse(absl::string_view given);

  const std::string& name() const { return name_; }

  // Runs XLA's pipeline for this target. Errors: XLA's.
  absl::StatusOr<std::unique_ptr<xla::HloModule>> RunHloPasses(
      std::unique_ptr<xla::HloModule> module) const;

 private:
  Target() = default;

  struct Gpu;
  std::string name_;
  std::shared_ptr<const Gpu> gpu_;  // null for the host
};

// Whether the installed XLA has a GPU compiler.
bool HasGpuCompiler();

// Models that XLA knows, sorted: "a100", "h100", ...
std::vector<std::string> GpuTargetNames();

}  // namespace hloenv
