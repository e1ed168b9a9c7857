// SPDX-License-Identifier: Apache-2.0
// What fork() leaves behind: one thread, and locks as the others held them.
#pragma once

#include <mutex>

namespace hloenv {

// The mutexes of state that the whole process shares, in the order in which a
// thread may lock several of them.
enum class ProcessLock { kBorrowedPasses, kConfig, kThreads, kHooks, kLogs };

// fork() waits for each of these mutexes, so that they are free, and what they
// guard is complete, in the process that is forked off. No holder may fork.
std::mutex& MutexOf(ProcessLock lock);

// Calls `function` in every process that is forked off from now on, before
// fork() returns there and while MutexOf's are held. It must not lock them.
void CallInForkedProcesses(void (*function)());

}  // namespace hloenv
