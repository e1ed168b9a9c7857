// SPDX-License-Identifier: Apache-2.0
// Checks for modules that XLA's verifier accepts but on which its CPU compiler
// fails a CHECK.
#pragma once

#include "absl/status/status.h"

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// CompileError where
// * an input or output is opaque;
// * a custom call of one of XLA's own targets (TopK, SliceToDynamic, Sharding,
//   Qr, ...) has operands or a result that XLA does not support.
absl::Status CheckOwnCalls(const xla::HloModule& module);

// CompileError where the module calls oneDNN. Nothing checks the configuration
// of these calls, so call this for modules on which neither XLA's pipeline has
// run nor onednn-calls was decided.
absl::Status CheckNoOneDnn(const xla::HloModule& module);

bool CallsOneDnn(const xla::HloModule& module);

}  // namespace hloenv
