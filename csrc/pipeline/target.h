// SPDX-License-Identifier: Apache-2.0
// What XLA compiles for: the host, or a GPU that need not be there.
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

  // XLA's pipeline for this target. Errors: what XLA says.
  absl::StatusOr<std::unique_ptr<xla::HloModule>> RunHloPasses(
      std::unique_ptr<xla::HloModule> module) const;

 private:
  Target() = default;

  struct Gpu;
  std::string name_;
  std::shared_ptr<const Gpu> gpu_;  // null for the host
};

// Whether the XLA that is installed can compile for GPUs.
bool HasGpuCompiler();

// Models that XLA knows, sorted: "a100", "h100", ...
std::vector<std::string> GpuTargetNames();

}  // namespace hloenv
