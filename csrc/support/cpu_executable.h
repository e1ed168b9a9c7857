// SPDX-License-Identifier: Apache-2.0
// Includes xla/service/cpu/cpu_executable.h, which cannot be included alone: it
// reaches YNNPACK's headers, which the wheel does not ship. Of those it needs
// one type, by name.
#pragma once

#include <memory>

#define XLA_BACKENDS_CPU_RUNTIME_YNNPACK_YNN_INTEROP_H_

struct ynn_threadpool;

namespace xla::cpu {
namespace internal {
struct YnnDeleter {
  // The wheel does not export XLA's own. Ours is for pools that live as long as
  // the process.
  void operator()(ynn_threadpool*) {}
};
}  // namespace internal
using YnnThreadpool = std::unique_ptr<ynn_threadpool, internal::YnnDeleter>;
}  // namespace xla::cpu

#include "xla/service/cpu/cpu_executable.h"
