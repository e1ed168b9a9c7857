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

// Call before every compile. ForkError if this process was forked after XLA
// started its compiler threads, which do not exist here.
absl::Status CheckCompilerThreads();

// XLA's compiler for the host. Lives as long as the process; any thread may
// compile. Checks XLA_FLAGS first: FlagError.
absl::StatusOr<xla::Compiler*> CpuCompiler();

// Thread pool for one execution, with as many threads as the process may use.
// Lives as long as the process.
const Eigen::ThreadPoolDevice* IntraOpThreads();

}  // namespace hloenv
