// SPDX-License-Identifier: Apache-2.0
// Hooks functions that libtensorflow exports.
//
// Calls inside the library go through its procedure linkage table, so writing
// another address into the library's own GOT entry redirects every one of them.
// A virtual function is called through tables of its own, which are relocated
// in the same way. Hooks change nothing unless a thread-local scope is active,
// so other users of the library in the process are not affected; except for the
// workarounds for crashes and wrong results in workarounds/.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace hloenv {

struct Hook {
  const char* symbol;  // mangled
  void* replacement;
  void** original;  // set to the library's own function
  bool is_virtual = false;
};

// Hooks that are installed together, on first use.
class HookGroup {
 public:
  explicit HookGroup(std::vector<Hook> hooks) : hooks_(std::move(hooks)) {}

  // Patches every GOT slot of both TensorFlow libraries for each hook, and
  // every other address of a virtual function, unless that has been done. All
  // or nothing: on error no slot is left changed. HookError when a library is
  // not loaded, a symbol is not exported, or nothing calls it through a slot.
  // Any thread, any number of times.
  absl::Status Install();

 private:
  const std::vector<Hook> hooks_;
  std::atomic<int64_t> installed_at_{-1};
};

// Writes the original addresses back, for every slot that still holds ours. No
// thread may be inside a hooked function. A later Install patches again.
void RemoveHooks();

// Number of slots patched now.
int NumPatchedSlots();

}  // namespace hloenv
