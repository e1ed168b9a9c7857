// SPDX-License-Identifier: Apache-2.0
// Marks calls into XLA: suppresses XLA's log lines, and lets forked processes
// detect them.
#pragma once

#include "absl/status/status.h"

namespace hloenv {

// Whether an XlaScope holds the logs back; off at first.
void SetQuiet(bool is_quiet);

// While this object exists, its thread may hold XLA's locks, and XLA logs FATAL
// lines only. The log level is global, so TensorFlow's log lines of other
// threads are dropped too; it is restored afterwards. Any thread; nests.
class XlaScope {
 public:
  XlaScope();
  ~XlaScope();
  XlaScope(const XlaScope&) = delete;
  XlaScope& operator=(const XlaScope&) = delete;

 private:
  bool is_quiet_;
};

// ForkError in a process that was forked while another thread was in an
// XlaScope: locks that the other thread held are never released.
absl::Status CheckNotForkedInXla();

}  // namespace hloenv
