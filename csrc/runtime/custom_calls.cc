// SPDX-License-Identifier: Apache-2.0
#include "runtime/custom_calls.h"

#include <map>

#include "absl/strings/match.h"
#include "support/status.h"
#include "xla/ffi/api/c_api.h"
#include "xla/service/custom_call_target_registry.h"

// From xla/ffi/ffi_api.h, which needs MLIR headers that the wheel does not have.
namespace xla::ffi {
struct HandlerRegistration {
  XLA_FFI_Metadata metadata;
  XLA_FFI_Handler_Bundle bundle;
};
absl::StatusOr<HandlerRegistration> FindHandler(absl::string_view name,
                                                absl::string_view platform);
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

namespace hloenv {
namespace {

constexpr char kPlatform[] = "Host";

// What the CPU backend's emitter handles itself, or what XLA's pipeline takes out
// before it.
bool IsXlaOwn(absl::string_view target) {
  static constexpr absl::string_view kTargets[] = {
      "AllocateBuffer", "Cholesky",       "Eigh",
      "PadToStatic",    "ProductOfElementaryHouseholderReflectors",
      "Qr",             "SPMDFullToShardShape",
      "SPMDShardToFullShape",             "Sharding",
      "SliceToDynamic", "TopK",           "X64Combine",
      "X64SplitHigh",   "X64SplitLow",    "annotate_device_placement",
  };
  return std::binary_search(std::begin(kTargets), std::end(kTargets), target) ||
         absl::StartsWith(target, "__onednn$");
}

bool IsRegistered(const std::string& target, bool is_typed) {
  if (is_typed) return xla::ffi::FindHandler(target, kPlatform).ok();
  return xla::CustomCallTargetRegistry::Global()->Lookup(target, kPlatform) !=
         nullptr;
}

// What a user can do about a target that nobody implements.
std::string Advice(absl::string_view target) {
  if (target == "hloenv.alternative") {
    return "the module still holds undecided alternatives: apply decisions "
           "(HloEnv.apply_alternatives) before compiling";
  }
  if (absl::StrContains(target, "python") &&
      absl::StrContains(target, "callback")) {
    return "it calls back into the Python of the process that lowered the "
           "module (jax.pure_callback, io_callback or debug.print), which "
           "cannot run here: lower the function without the callback";
  }
  if (target == "LuDecomposition") {
    return "XLA has no expansion for it on the CPU: lower the function for the "
           "CPU instead of the TPU (with jax.jit(f).lower(...) on a CPU "
           "backend it becomes LAPACK's getrf, which jaxlib implements)";
  }
  if (absl::StartsWith(target, "lapack_") || absl::StartsWith(target, "blas_") ||
      absl::StartsWith(target, "cpu_csr_")) {
    return "jaxlib implements it: install jaxlib (pip install 'hloenv[jax]') of "
           "about the version that lowered the module";
  }
  return "register an implementation with hloenv.ffi.register_target, or "
         "lower the function without it";
}

}  // namespace

std::vector<CustomCallTarget> CustomCallTargets(const xla::HloModule& module) {
  std::map<std::string, CustomCallTarget> targets;
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() != xla::HloOpcode::kCustomCall) continue;
      const auto* call = xla::Cast<xla::HloCustomCallInstruction>(instruction);
      const std::string& name = call->custom_call_target();
      const bool is_dead = call->user_count() == 0 && !call->IsRoot() &&
                           !call->custom_call_has_side_effect();
      if (is_dead || IsXlaOwn(name)) continue;
      CustomCallTarget& target = targets[name];
      if (target.num_calls++ > 0) continue;
      target.name = name;
      target.is_typed = call->api_version() ==
                        xla::CustomCallApiVersion::API_VERSION_TYPED_FFI;
      target.is_registered = IsRegistered(name, target.is_typed);
      target.instruction = std::string(call->name());
    }
  }
  std::vector<CustomCallTarget> result;
  for (auto& [name, target] : targets) result.push_back(std::move(target));
  return result;
}

absl::Status CheckCustomCalls(const xla::HloModule& module) {
  for (const CustomCallTarget& target : CustomCallTargets(module)) {
    if (target.is_registered) continue;
    return Error(kCompileError,
                 absl::StrCat("nobody implements the custom call '",
                              target.name, "' (%", target.instruction, ", ",
                              target.num_calls,
                              target.num_calls == 1 ? " call" : " calls",
                              ") on the CPU; ", Advice(target.name)));
  }
  return absl::OkStatus();
}

absl::Status RegisterFfiHandler(absl::string_view name,
                                const FfiHandler& handler) {
  if (handler.execute == nullptr) {
    return Error(kArgumentError, absl::StrCat("the FFI handler for '", name,
                                              "' has no execute stage"));
  }
  auto stage = [](void* function) {
    return reinterpret_cast<XLA_FFI_Handler*>(function);
  };
  const XLA_FFI_Api* api = xla::ffi::GetXlaFfiApi();
  XLA_FFI_Handler_Register_Args args = {};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {name.data(), name.size()};
  args.platform = {kPlatform, sizeof(kPlatform) - 1};
  args.bundle.instantiate = stage(handler.instantiate);
  args.bundle.prepare = stage(handler.prepare);
  args.bundle.initialize = stage(handler.initialize);
  args.bundle.execute = stage(handler.execute);
  if (XLA_FFI_Error* error = api->XLA_FFI_Handler_Register(&args)) {
    XLA_FFI_Error_GetMessage_Args message = {};
    message.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
    message.error = error;
    api->XLA_FFI_Error_GetMessage(&message);
    absl::Status status = Error(
        kArgumentError, absl::StrCat("XLA does not take the FFI handler for '",
                                     name, "': ", message.message));
    XLA_FFI_Error_Destroy_Args destroy = {};
    destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
    destroy.error = error;
    api->XLA_FFI_Error_Destroy(&destroy);
    return status;
  }
  return absl::OkStatus();
}

absl::Status RegisterUntypedTarget(const std::string& name, void* function) {
  auto* registry = xla::CustomCallTargetRegistry::Global();
  void* registered = registry->Lookup(name, kPlatform);
  if (registered != nullptr && registered != function) {
    return Error(kArgumentError, absl::StrCat("custom call target '", name,
                                              "' is registered already, with "
                                              "another function"));
  }
  if (registered == nullptr) registry->Register(name, function, kPlatform);
  return absl::OkStatus();
}

}  // namespace hloenv
