// SPDX-License-Identifier: Apache-2.0
#define EIGEN_USE_THREADS

#include "runtime/cpu_client.h"

#include "hlo/config.h"
#include "support/status.h"
#include "tsl/platform/cpu_info.h"
#include "unsupported/Eigen/CXX11/Tensor"
#include "xla/service/compiler.h"
#include "xla/stream_executor/host/host_platform_id.h"
#include "xla/tsl/platform/env.h"
#include "xla/tsl/platform/threadpool.h"

namespace hloenv {

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
  static const auto* device = [] {
    const int num_threads = tsl::port::NumSchedulableCPUs();
    auto* pool =
        new tsl::thread::ThreadPool(tsl::Env::Default(), "hloenv", num_threads);
    return new Eigen::ThreadPoolDevice(pool->AsEigenThreadPool(), num_threads);
  }();
  return device;
}

}  // namespace hloenv
