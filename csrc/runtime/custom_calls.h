// SPDX-License-Identifier: Apache-2.0
// Custom calls: who implements them, and a clear error when nobody does.
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
  bool is_registered = false;  // somebody implements it on the CPU
  std::string instruction;     // the first that calls it
  int64_t num_calls = 0;
};

// The targets that live code of `module` calls and that neither XLA's CPU
// pipeline nor its backend implements by itself, sorted by name.
std::vector<CustomCallTarget> CustomCallTargets(const xla::HloModule& module);

// CompileError, naming the target and what to do, when the module makes a
// custom call that has no implementation, or CheckOwnCalls returns an error.
absl::Status CheckCustomCalls(const xla::HloModule& module);

// The stages of a typed FFI handler; null where it has none. `execute` is
// needed.
struct FfiHandler {
  void* instantiate = nullptr;
  void* prepare = nullptr;
  void* initialize = nullptr;
  void* execute = nullptr;
};

// Registers an XLA_FFI_Handler for the CPU. Registering the same one again does
// nothing. ArgumentError when XLA refuses it.
absl::Status RegisterFfiHandler(absl::string_view name,
                                const FfiHandler& handler);

// Registers a function of the older, untyped calling conventions for the CPU.
absl::Status RegisterUntypedTarget(const std::string& name, void* function);

}  // namespace hloenv
