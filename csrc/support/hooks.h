// SPDX-License-Identifier: Apache-2.0
// Puts functions of ours in front of functions that libtensorflow exports.
//
// Calls inside the library go through its procedure linkage table, so writing
// another address into the library's own GOT entry redirects every one of them.
// A hook only observes unless a scope (thread-local) says otherwise, so other
// users of the library in the process see no difference.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hloenv {

struct Hook {
  const char* symbol;  // mangled
  void* replacement;
  void** original;  // set to the library's own function
};

// Patches every GOT slot of both TensorFlow libraries for each hook. All or
// nothing: on error no slot is left changed. HookError when a library is not
// loaded, a symbol is not exported, or nothing calls it through a slot.
absl::Status InstallHooks(const std::vector<Hook>& hooks);

// Writes the original addresses back, for every slot that still holds ours.
void RemoveHooks();

// Number of slots patched now.
int NumPatchedSlots();

}  // namespace hloenv
