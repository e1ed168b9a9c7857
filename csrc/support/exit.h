// SPDX-License-Identifier: Apache-2.0
// Process exit while threads are inside XLA.
//
// Python does not wait for its daemon threads. exit() then destroys the static
// objects of XLA and LLVM while such a thread works with them.
#pragma once

namespace hloenv {

// While this object exists, its thread may be inside XLA and does not hold the
// GIL. Nests.
class NativeScope {
 public:
  NativeScope();
  ~NativeScope();
  NativeScope(const NativeScope&) = delete;
  NativeScope& operator=(const NativeScope&) = delete;
};

// From now on, where a NativeScope lives, exit() flushes C's streams and ends
// the process with its exit code, without destroying anything. To be called as
// late as possible: exit() calls what was registered last first, and XLA
// registers a destructor when it first needs the object.
void SkipDestructorsAtExit();

}  // namespace hloenv
