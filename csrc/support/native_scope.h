// SPDX-License-Identifier: Apache-2.0
// Exit and fork of a process while its threads are inside XLA.
//
// Python does not wait for its daemon threads: exit() destroys the static
// objects of XLA and LLVM while such a thread works with them. A forked process
// has only the thread that forked: locks that the others held stay locked.
#pragma once

#include "absl/status/status.h"

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

// ForkError in a process that was forked while another thread was in a
// NativeScope.
absl::Status CheckNotForkedInXla();

}  // namespace hloenv
