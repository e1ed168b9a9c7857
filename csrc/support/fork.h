// SPDX-License-Identifier: Apache-2.0
// Support for fork(), which copies only the calling thread but all held locks.
#pragma once

#include <mutex>

namespace hloenv {

// The mutexes of state that the whole process shares, in the order in which a
// thread may lock several of them.
enum class ProcessLock {
  kCompilerOwnedPasses,
  kConfig,
  kThreads,
  kHooks,
  kLogs
};

// fork() locks each of these mutexes first, so that in the forked process they
// are free and the state that they guard is consistent. No holder may fork.
std::mutex& MutexOf(ProcessLock lock);

// Calls `function` in every process forked from now on, before fork() returns
// there and while the mutexes of MutexOf are held, so it must not lock them.
void CallInForkedProcesses(void (*function)());

}  // namespace hloenv
