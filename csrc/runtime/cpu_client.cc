// SPDX-License-Identifier: Apache-2.0
#define EIGEN_USE_THREADS

#include "runtime/cpu_client.h"

#include <unistd.h>

#include <atomic>

#include "hlo/config.h"
#include "support/fork.h"
#include "support/status.h"
#include "tsl/platform/cpu_info.h"
#include "unsupported/Eigen/CXX11/Tensor"
#include "xla/service/compiler.h"
#include "xla/stream_executor/host/host_platform_id.h"
#include "xla/tsl/platform/env.h"
#include "xla/tsl/platform/threadpool.h"

namespace hloenv {
namespace {

// XLA creates a thread pool at its first compile. In a process forked after
// that, the threads do not exist, and a compile would deadlock.
std::atomic<bool> has_compiled{false};
std::atomic<bool> lost_compiler_threads{false};

// The pool of IntraOpThreads; a forked process makes a new one. Guarded by
// MutexOf(kThreads).
std::atomic<const Eigen::ThreadPoolDevice*> intra_op_threads{nullptr};

const bool has_fork_handler = [] {
  CallInForkedProcesses([] {
    lost_compiler_threads = has_compiled.load();
    intra_op_threads = nullptr;
  });
  return true;
}();

}  // namespace

absl::Status CheckCompilerThreads() {
  if (lost_compiler_threads) {
    return Error(
        kForkError,
        absl::StrCat(
            "process ", getpid(), " was forked from one in which XLA had ",
            "compiled: the threads of XLA's compiler do not exist here, so a ",
            "compile would deadlock. Start such processes with ",
            "multiprocessing.get_context('spawn') or 'forkserver', fork "
            "before ",
            "the first compile, or compile in hloenv's own child processes ",
            "(hloenv.measure, hloenv.isolated)"));
  }
  has_compiled = true;
  return absl::OkStatus();
}

absl::StatusOr<xla::Compiler*> CpuCompiler() {
  HLOENV_RETURN_IF_ERROR(DefaultModuleConfig().status());
  static auto* compiler = new absl::StatusOr<std::unique_ptr<xla::Compiler>>(
      xla::Compiler::GetForPlatform(stream_executor::host::kHostPlatformId));
  if (!compiler->ok()) {
    return Annotate(compiler->status(), kCompileError,
                    "this TensorFlow has no compiler for the host");
  }
  return (*compiler)->get();
}

const Eigen::ThreadPoolDevice* IntraOpThreads() {
  if (const auto* threads = intra_op_threads.load()) return threads;
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kThreads));
  if (const auto* threads = intra_op_threads.load()) return threads;
  const int num_threads = tsl::port::NumSchedulableCPUs();
  auto* pool =
      new tsl::thread::ThreadPool(tsl::Env::Default(), "hloenv", num_threads);
  intra_op_threads =
      new Eigen::ThreadPoolDevice(pool->AsEigenThreadPool(), num_threads);
  return intra_op_threads;
}

}  // namespace hloenv
