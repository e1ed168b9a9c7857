// SPDX-License-Identifier: Apache-2.0
// The process-wide CPU backend.
#pragma once

#include "absl/status/statusor.h"

namespace Eigen {
struct ThreadPoolDevice;
}  // namespace Eigen

namespace xla {
class Compiler;
}  // namespace xla

namespace hloenv {

// Before every compile: a ForkError where the threads that XLA compiles on were
// left behind in a process that this one was forked from.
absl::Status CheckCompilerThreads();

// XLA's compiler for the host. Lives as long as the process; any thread may
// compile. Checks XLA_FLAGS first: FlagError.
absl::StatusOr<xla::Compiler*> CpuCompiler();

// Threads for what one execution does in parallel, as many as the process may
// use. Lives as long as the process.
const Eigen::ThreadPoolDevice* IntraOpThreads();

}  // namespace hloenv
