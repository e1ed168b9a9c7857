// SPDX-License-Identifier: Apache-2.0
// Custom calls: their implementations, and an error where one is missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

// One target that a module calls.
struct CustomCallTarget {
  std::string name;
  bool is_typed = false;  // XLA's typed FFI, else an older calling convention
  bool is_registered = false;  // has an implementation on the CPU
  std::string instruction;     // the first that calls it
  int64_t num_calls = 0;
};

// The targets that live instructions of `module` call and that neither XLA's
// CPU pipeline nor its backend implements, sorted by name.
std::vector<CustomCallTarget> CustomCallTargets(const xla::HloModule& module);

// CompileError, which names the target and a remedy, when a custom call has no
// implementation or CheckOwnCalls returns an error.
absl::Status CheckCustomCalls(const xla::HloModule& module);
// The same for jaxlib, which registers handlers of its own: CompileError where
// it would end the process, as with functions of the Python process that
// lowered the module.
absl::Status CheckCallsInJaxlib(const xla::HloModule& module);

// The stages of a typed FFI handler; null for a missing stage. `execute` is
// required.
struct FfiHandler {
  void* instantiate = nullptr;
  void* prepare = nullptr;
  void* initialize = nullptr;
  void* execute = nullptr;
};

// Registers an XLA_FFI_Handler for the CPU. Registering the same handler again
// has no effect. ArgumentError when XLA rejects it.
absl::Status RegisterFfiHandler(absl::string_view name,
                                const FfiHandler& handler);

// Registers a function of the older, untyped calling conventions for the CPU.
absl::Status RegisterUntypedTarget(const std::string& name, void* function);

}  // namespace hloenv
