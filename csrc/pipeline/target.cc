// SPDX-License-Identifier: Apache-2.0
#include "pipeline/target.h"

#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "hlo/config.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/backends/gpu/target_config/target_config.h"
#include "xla/service/compiler.h"
#include "xla/service/gpu_topology.h"
#include "xla/stream_executor/cuda/cuda_platform_id.h"
#include "xla/stream_executor/host/host_platform_id.h"

namespace hloenv {
namespace {

using xla::gpu::GpuModel;
using GpuProto = stream_executor::GpuTargetConfigProto;

constexpr std::pair<absl::string_view, GpuModel> kModels[] = {
    {"a100", GpuModel::A100_SXM_80},
    {"a100-pcie-80", GpuModel::A100_PCIE_80},
    {"a100-sxm-40", GpuModel::A100_SXM_40},
    {"a100-sxm-80", GpuModel::A100_SXM_80},
    {"a6000", GpuModel::A6000},
    {"b200", GpuModel::B200},
    {"b300", GpuModel::B300},
    {"h100", GpuModel::H100_SXM},
    {"h100-pcie", GpuModel::H100_PCIE},
    {"h100-sxm", GpuModel::H100_SXM},
    {"p100", GpuModel::P100},
    {"v100", GpuModel::V100},
};

// Keeps the first parse error instead of logging all of them.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void RecordError(int line, google::protobuf::io::ColumnNumber,
                   absl::string_view message) override {
    if (first.empty()) first = absl::StrCat("line ", line + 1, ": ", message);
  }
  std::string first;
};

}  // namespace

struct Target::Gpu {
  xla::gpu::GpuTargetConfig config;
};

std::vector<std::string> GpuTargetNames() {
  std::vector<std::string> names;
  for (const auto& [name, model] : kModels) names.emplace_back(name);
  return names;
}

bool HasGpuCompiler() {
  QuietScope scope;
  return xla::Compiler::GetForPlatform(stream_executor::cuda::kCudaPlatformId)
      .ok();
}

absl::StatusOr<Target> Target::Parse(absl::string_view given) {
  QuietScope scope;
  Target target;
  target.name_ = std::string(given);
  if (given == "cpu") return target;

  std::optional<GpuProto> proto;
  for (const auto& [name, model] : kModels) {
    if (given != name) continue;
    absl::StatusOr<GpuProto> known = xla::gpu::GetGpuTargetConfig(model);
    if (!known.ok()) {
      return Annotate(known.status(), kTargetError,
                      absl::StrCat("this XLA does not describe '", given, "'"));
    }
    proto = *std::move(known);
  }
  if (!proto.has_value()) {
    proto.emplace();
    FirstError errors;
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(&errors);
    if (given.empty() || !parser.ParseFromString(std::string(given), &*proto)) {
      constexpr size_t kNumShown = 60;
      return Error(
          kTargetError,
          absl::StrCat("'", absl::CHexEscape(given.substr(0, kNumShown)),
                       given.size() > kNumShown ? "..." : "",
                       "' is not a target; give 'cpu', ",
                       absl::StrJoin(GpuTargetNames(), ", ",
                                     [](std::string* out, const auto& name) {
                                       absl::StrAppend(out, "'", name, "'");
                                     }),
                       ", or the text of a GpuTargetConfigProto",
                       errors.first.empty() ? "" : " (parse error: ",
                       absl::CHexEscape(errors.first),
                       errors.first.empty() ? "" : ")"));
    }
    target.name_ = proto->device_description_str();
  }
  absl::StatusOr<xla::gpu::GpuTargetConfig> config =
      xla::gpu::GpuTargetConfig::FromProto(*proto);
  if (!config.ok()) {
    return Annotate(config.status(), kTargetError,
                    "XLA rejected the GpuTargetConfigProto");
  }
  const auto compiler =
      xla::Compiler::GetForPlatform(stream_executor::cuda::kCudaPlatformId);
  if (!compiler.ok()) {
    return Error(
        kTargetError,
        absl::StrCat("the installed tensorflow-cpu has no GPU compiler; for "
                     "target '",
                     given,
                     "' make an environment with hloenv[cuda], which needs no "
                     "GPU"));
  }
  target.gpu_ = std::make_shared<const Gpu>(Gpu{*std::move(config)});
  return target;
}

absl::StatusOr<std::unique_ptr<xla::HloModule>> Target::RunHloPasses(
    std::unique_ptr<xla::HloModule> module) const {
  xla::Compiler::CompileOptions options;
  // Check XLA_FLAGS before XLA's compiler reads them.
  HLOENV_RETURN_IF_ERROR(DefaultModuleConfig().status());
  if (gpu_ != nullptr) {
    options.gpu_topology =
        xla::GetSingleDeviceGpuTopology(/*platform_version=*/"", gpu_->config);
    // Autotuning runs kernels, which needs a device.
    module->mutable_config().mutable_debug_options().set_xla_gpu_autotune_level(
        0);
  }
  HLOENV_ASSIGN_OR_RETURN(
      std::unique_ptr<xla::Compiler> compiler,
      xla::Compiler::GetForPlatform(
          gpu_ == nullptr ? stream_executor::host::kHostPlatformId
                          : stream_executor::cuda::kCudaPlatformId));
  return compiler->RunHloPasses(std::move(module), /*executor=*/nullptr,
                                options);
}

}  // namespace hloenv
