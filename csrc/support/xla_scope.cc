// SPDX-License-Identifier: Apache-2.0
#include "support/xla_scope.h"

#include <unistd.h>

#include <atomic>
#include <mutex>

#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/strings/str_cat.h"
#include "support/fork.h"
#include "support/status.h"

namespace hloenv {
namespace {

std::atomic<bool> quiet{false};
std::atomic<bool> was_forked_in_xla{false};

// The scopes that are alive; guarded by MutexOf(kLogs).
struct Scopes {
  int count = 0;
  int num_quiet = 0;
  absl::LogSeverityAtLeast level_before = absl::LogSeverityAtLeast::kInfo;
};

Scopes scopes;
thread_local Scopes own;  // of them, this thread's

void RestoreLevel() { absl::SetMinLogLevel(scopes.level_before); }

// The other threads do not exist in a process that is forked off.
void ForgetOtherThreads() {
  if (scopes.count > own.count) was_forked_in_xla = true;
  if (scopes.num_quiet > 0 && own.num_quiet == 0) RestoreLevel();
  scopes.count = own.count;
  scopes.num_quiet = own.num_quiet;
}

const bool is_told_of_forks = [] {
  CallInForkedProcesses(ForgetOtherThreads);
  return true;
}();

}  // namespace

void SetQuiet(bool is_quiet) { quiet = is_quiet; }

XlaScope::XlaScope() : is_quiet_(quiet) {
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kLogs));
  ++scopes.count;
  ++own.count;
  if (!is_quiet_) return;
  ++own.num_quiet;
  if (scopes.num_quiet++ > 0) return;
  scopes.level_before = absl::MinLogLevel();
  absl::SetMinLogLevel(absl::LogSeverityAtLeast::kFatal);
}

XlaScope::~XlaScope() {
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kLogs));
  --scopes.count;
  --own.count;
  if (!is_quiet_) return;
  --own.num_quiet;
  if (--scopes.num_quiet == 0) RestoreLevel();
}

absl::Status CheckNotForkedInXla() {
  if (!was_forked_in_xla) return absl::OkStatus();
  return Error(
      kForkError,
      absl::StrCat(
          "process ", getpid(), " was forked from one in which another thread ",
          "was inside XLA: the locks that it held are never released here, "
          "so XLA would deadlock. ",
          "Start such processes with ",
          "multiprocessing.get_context('spawn') or 'forkserver', or fork "
          "while ",
          "no other thread calls hloenv"));
}

}  // namespace hloenv
