// SPDX-License-Identifier: Apache-2.0
#include "support/quiet.h"

#include <atomic>
#include <mutex>

#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "support/fork.h"

namespace hloenv {
namespace {

std::atomic<bool> quiet{false};

// Guarded by MutexOf(kLogs).
struct Level {
  int num_alive = 0;
  absl::LogSeverityAtLeast before = absl::LogSeverityAtLeast::kInfo;
};

Level level;
thread_local int num_own = 0;  // of num_alive

void Restore() { absl::SetMinLogLevel(level.before); }

// The other threads do not exist in a forked process.
void RestoreInForkedProcess() {
  if (level.num_alive > 0 && num_own == 0) Restore();
  level.num_alive = num_own;
}

}  // namespace

void SetQuiet(bool is_quiet) {
  static const bool is_registered = [] {
    CallInForkedProcesses(RestoreInForkedProcess);
    return true;
  }();
  quiet = is_registered && is_quiet;
}

QuietScope::QuietScope() : is_quiet_(quiet) {
  if (!is_quiet_) return;
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kLogs));
  ++num_own;
  if (level.num_alive++ > 0) return;
  level.before = absl::MinLogLevel();
  absl::SetMinLogLevel(absl::LogSeverityAtLeast::kFatal);
}

QuietScope::~QuietScope() {
  if (!is_quiet_) return;
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kLogs));
  --num_own;
  if (--level.num_alive == 0) Restore();
}

}  // namespace hloenv
