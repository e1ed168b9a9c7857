// SPDX-License-Identifier: Apache-2.0
#include "support/quiet.h"

#include <atomic>
#include <mutex>

#include "absl/base/log_severity.h"
#include "absl/log/globals.h"

namespace hloenv {
namespace {

std::atomic<bool> quiet{false};

struct Level {
  std::mutex mutex;
  int num_alive = 0;
  absl::LogSeverityAtLeast before = absl::LogSeverityAtLeast::kInfo;
};

Level& TheLevel() {
  static auto* level = new Level();
  return *level;
}

}  // namespace

void SetQuiet(bool is_quiet) { quiet = is_quiet; }

QuietLogs::QuietLogs() : counts_(quiet) {
  if (!counts_) return;
  Level& level = TheLevel();
  std::lock_guard<std::mutex> lock(level.mutex);
  if (level.num_alive++ > 0) return;
  level.before = absl::MinLogLevel();
  absl::SetMinLogLevel(absl::LogSeverityAtLeast::kFatal);
}

QuietLogs::~QuietLogs() {
  if (!counts_) return;
  Level& level = TheLevel();
  std::lock_guard<std::mutex> lock(level.mutex);
  if (--level.num_alive == 0) absl::SetMinLogLevel(level.before);
}

}  // namespace hloenv
