// SPDX-License-Identifier: Apache-2.0
#include "runtime/one_device.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/service/computation_placer.h"
#include "xla/shape_util.h"

namespace hloenv {

namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// The devices that an operation needs at least.
int64_t DevicesOf(const HloInstruction& instruction) {
  int64_t last = 0;
  if (const auto* permute =
          xla::DynCast<xla::HloCollectivePermuteInstruction>(&instruction)) {
    for (const auto& [source, target] : permute->source_target_pairs()) {
      last = std::max({last, source, target});
    }
    return last + 1;
  }
  const auto* collective =
      xla::DynCast<xla::HloCollectiveInstruction>(&instruction);
  if (collective == nullptr) return 1;
  for (const xla::ReplicaGroup& group : collective->replica_groups()) {
    for (const int64_t device : group.replica_ids()) {
      last = std::max(last, device);
    }
  }
  // No groups are one of all devices; each has a part of these arrays.
  if (instruction.opcode() == HloOpcode::kAllGather ||
      instruction.opcode() == HloOpcode::kReduceScatter) {
    int64_t given = 0;
    for (const HloInstruction* operand : instruction.operands()) {
      given += xla::ShapeUtil::ElementsIn(operand->shape());
    }
    if (given != xla::ShapeUtil::ElementsInRecursive(instruction.shape())) {
      last = std::max<int64_t>(last, 1);
    }
  }
  return last + 1;
}

absl::Status CheckRunsAlone(const HloInstruction& instruction) {
  const auto opcode = xla::HloOpcodeString(instruction.opcode());
  if (instruction.opcode() == HloOpcode::kInfeed ||
      instruction.opcode() == HloOpcode::kOutfeed) {
    return Error(kCompileError,
                 absl::StrCat("%", instruction.name(), " is an ", opcode,
                              ": it would wait for a host that reads or "
                              "writes it, which hloenv does not; pass such "
                              "arrays as parameters and results"));
  }
  const int64_t devices = DevicesOf(instruction);
  if (devices == 1) return absl::OkStatus();
  return Error(kCompileError,
               absl::StrCat("%", instruction.name(), " (", opcode, ") needs ",
                            devices, " devices or more; hloenv runs on one"));
}

}  // namespace

const xla::DeviceAssignment& OneDevice() {
  static const auto* device = [] {
    auto* assignment = new xla::DeviceAssignment(1, 1);
    (*assignment)(0, 0) = 0;
    return assignment;
  }();
  return *device;
}

absl::Status CheckRunsAlone(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const HloInstruction* instruction : computation->instructions()) {
      HLOENV_RETURN_IF_ERROR(CheckRunsAlone(*instruction));
    }
  }
  return absl::OkStatus();
}

}  // namespace hloenv
