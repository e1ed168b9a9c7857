// SPDX-License-Identifier: Apache-2.0
// A thread's work inside XLA: without log lines on stderr, and known to a
// process that is forked off meanwhile.
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// Whether an XlaScope holds the logs back; off at first.
void SetQuiet(bool is_quiet);

// While one lives, its thread may hold locks of XLA's, and XLA logs FATAL lines
// only. The level is the process's, so what TensorFlow logs meanwhile in
// another thread is dropped too; between calls of hloenv it is as the process
// set it. Any thread, nested or not.
class XlaScope {
 public:
  XlaScope();
  ~XlaScope();
  XlaScope(const XlaScope&) = delete;
  XlaScope& operator=(const XlaScope&) = delete;

 private:
  bool is_quiet_;
};

// ForkError in a process that was forked off while another thread was in an
// XlaScope: XLA would wait forever for the locks that this thread held.
absl::Status CheckNotForkedInXla();

}  // namespace hloenv
