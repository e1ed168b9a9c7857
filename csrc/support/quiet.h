// SPDX-License-Identifier: Apache-2.0
// Suppresses XLA's log lines while hloenv works.
#pragma once

namespace hloenv {

// Whether a QuietScope does anything; off at first.
void SetQuiet(bool is_quiet);

// While this object exists, XLA logs FATAL lines only. The log level is global,
// so TensorFlow's log lines of other threads are dropped too; it is restored
// afterwards. Any thread; nests.
class QuietScope {
 public:
  QuietScope();
  ~QuietScope();
  QuietScope(const QuietScope&) = delete;
  QuietScope& operator=(const QuietScope&) = delete;

 private:
  bool is_quiet_;
};

}  // namespace hloenv
