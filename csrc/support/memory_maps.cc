// SPDX-License-Identifier: Apache-2.0
#include "support/memory_maps.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "support/status.h"

namespace hloenv {
namespace {

// More than the executable of any module needs that we have seen.
constexpr int64_t kNeeded = 4096;

int64_t MemoryMapsAllowed() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  int64_t count = 0;
  return file >> count ? count : 65530;  // Linux's default
}

// One line for each.
int64_t MemoryMapsUsed() {
  std::FILE* file = std::fopen("/proc/self/maps", "r");
  if (file == nullptr) return 0;
  int64_t count = 0;
  char buffer[1 << 16];
  while (size_t size = std::fread(buffer, 1, sizeof(buffer), file)) {
    for (const char* at = buffer;
         (at = static_cast<const char*>(
              std::memchr(at, '\n', buffer + size - at))) != nullptr;
         ++at) {
      ++count;
    }
  }
  std::fclose(file);
  return count;
}

}  // namespace

absl::Status CheckMemoryMapsLeft() {
  static const int64_t allowed = MemoryMapsAllowed();
  const int64_t used = MemoryMapsUsed();
  if (used + kNeeded <= allowed) return absl::OkStatus();
  return Error(
      kCompileError,
      absl::StrCat("this process has ", used, " of the ", allowed,
                   " memory maps that the system allows, too many to load "
                   "another executable; drop some executables, or have "
                   "vm.max_map_count raised"));
}

}  // namespace hloenv
