// SPDX-License-Identifier: Apache-2.0
#include "workarounds/forked_alarm.h"

#include <atomic>

#include "support/fork.h"
#include "support/hooks.h"

namespace hloenv {
namespace {

// Of xla::SlowOperationAlarm, whose constructor and destructor call these.
using Schedule = void (*)(void* alarm);
using Unschedule = void (*)(const void* alarm);

std::atomic<bool> is_forked{false};

Schedule schedule;
void ScheduleUnlessForked(void* alarm) {
  if (!is_forked.load(std::memory_order_relaxed)) schedule(alarm);
}

Unschedule unschedule;
void UnscheduleUnlessForked(const void* alarm) {
  if (!is_forked.load(std::memory_order_relaxed)) unschedule(alarm);
}

}  // namespace

absl::Status InstallForkedAlarm() {
  static auto* group = [] {
    CallInForkedProcesses([] { is_forked = true; });
    return new HookGroup({
        {"_ZN3xla18SlowOperationAlarm13ScheduleAlarmEPS0_",
         reinterpret_cast<void*>(ScheduleUnlessForked),
         reinterpret_cast<void**>(&schedule)},
        {"_ZN3xla18SlowOperationAlarm15UnscheduleAlarmEPKS0_",
         reinterpret_cast<void*>(UnscheduleUnlessForked),
         reinterpret_cast<void**>(&unschedule)},
    });
  }();
  return group->Install();
}

}  // namespace hloenv
