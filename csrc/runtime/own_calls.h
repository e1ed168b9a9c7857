// SPDX-License-Identifier: Apache-2.0
// What XLA's CPU compiler takes for granted of its input and ends the process
// over, though its verifier passes it.
#pragma once

#include "absl/status/status.h"

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// CompileError where
// * an input or output is opaque;
// * a custom call of one of XLA's own targets (TopK, SliceToDynamic, Sharding,
//   Qr, ...) has other operands or another result than XLA gives it.
absl::Status CheckOwnCalls(const xla::HloModule& module);

// CompileError where the module calls oneDNN, which only XLA's own passes do,
// with a configuration that nothing checks: for modules that no pass has seen.
absl::Status CheckNoOneDnn(const xla::HloModule& module);

}  // namespace hloenv
