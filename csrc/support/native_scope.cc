// SPDX-License-Identifier: Apache-2.0
#include "support/native_scope.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "support/fork.h"
#include "support/status.h"

namespace hloenv {
namespace {

std::atomic<int64_t> num_scopes{0};
thread_local int64_t num_own_scopes = 0;
std::atomic<bool> was_forked_in_xla{false};

// The thread that forked, in a signal handler perhaps, is the only one in the
// new process.
void ForgetOtherThreads() {
  if (num_scopes > num_own_scopes) was_forked_in_xla = true;
  num_scopes = num_own_scopes;
}

const bool is_told_of_forks = [] {
  CallInForkedProcesses(ForgetOtherThreads);
  return true;
}();

void EndProcess(int exit_code, void*) {
  if (num_scopes == 0) return;
  std::fflush(nullptr);
  _exit(exit_code);
}

}  // namespace

NativeScope::NativeScope() {
  ++num_scopes;
  ++num_own_scopes;
}
NativeScope::~NativeScope() {
  --num_scopes;
  --num_own_scopes;
}

void SkipDestructorsAtExit() { on_exit(EndProcess, nullptr); }

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
