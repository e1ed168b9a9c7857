// SPDX-License-Identifier: Apache-2.0
// XLA's log lines, kept off stderr while hloenv works.
#pragma once

namespace hloenv {

// Whether QuietLogs does anything; off at first.
void SetQuiet(bool is_quiet);

// While one lives, XLA logs FATAL lines only. The level is the process's, so
// what TensorFlow logs meanwhile in another thread is dropped too; between
// calls of hloenv it is as the process set it. Any thread, nested or not.
class QuietLogs {
 public:
  QuietLogs();
  ~QuietLogs();
  QuietLogs(const QuietLogs&) = delete;
  QuietLogs& operator=(const QuietLogs&) = delete;

 private:
  bool counts_;
};

}  // namespace hloenv
