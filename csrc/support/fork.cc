// SPDX-License-Identifier: Apache-2.0
#include "support/fork.h"

#include <pthread.h>

#include <array>
#include <vector>

namespace hloenv {
namespace {

constexpr size_t kNumLocks = static_cast<size_t>(ProcessLock::kLogs) + 1;

struct Registry {
  std::array<std::mutex, kNumLocks> mutexes;
  std::mutex functions_mutex;  // locked last
  std::vector<void (*)()> functions;
};

Registry& TheRegistry();

void LockAll() {
  Registry& registry = TheRegistry();
  for (std::mutex& mutex : registry.mutexes) mutex.lock();
  registry.functions_mutex.lock();
}

void UnlockAll() {
  Registry& registry = TheRegistry();
  registry.functions_mutex.unlock();
  for (std::mutex& mutex : registry.mutexes) mutex.unlock();
}

void CallAndUnlockAll() {
  for (void (*function)() : TheRegistry().functions) function();
  UnlockAll();
}

Registry& TheRegistry() {
  static auto* registry = [] {
    auto* result = new Registry();
    pthread_atfork(LockAll, UnlockAll, CallAndUnlockAll);
    return result;
  }();
  return *registry;
}

}  // namespace

std::mutex& MutexOf(ProcessLock lock) {
  return TheRegistry().mutexes[static_cast<size_t>(lock)];
}

void CallInForkedProcesses(void (*function)()) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> guard(registry.functions_mutex);
  registry.functions.push_back(function);
}

}  // namespace hloenv
