// SPDX-License-Identifier: Apache-2.0
// What modules need beside the one device that they run on.
#pragma once

#include "absl/status/status.h"

namespace xla {
class DeviceAssignment;
class HloModule;
}  // namespace xla

namespace hloenv {

// The device, of which numbers of partitions and replicas, and operations
// between devices, are computed.
const xla::DeviceAssignment& OneDevice();

// CompileError, which names an instruction, where a module needs other devices,
// or waits for the host's side of an infeed or outfeed, which it has not here.
// Without it, XLA ends the process, waits, or returns what was in memory.
absl::Status CheckRunsAlone(const xla::HloModule& module);

}  // namespace hloenv
