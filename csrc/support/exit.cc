// SPDX-License-Identifier: Apache-2.0
#include "support/exit.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "support/fork.h"

namespace hloenv {
namespace {

std::atomic<int64_t> num_scopes{0};
thread_local int64_t num_own_scopes = 0;

// The thread that forked, in a signal handler perhaps, is the only one in the
// new process.
const bool is_reset_by_forks = [] {
  CallInForkedProcesses([] { num_scopes = num_own_scopes; });
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

}  // namespace hloenv
