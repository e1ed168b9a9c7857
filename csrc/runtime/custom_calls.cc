// SPDX-License-Identifier: Apache-2.0
#include "runtime/custom_calls.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "runtime/own_calls.h"
#include "support/status.h"
#include "xla/ffi/api/c_api.h"
#include "xla/service/custom_call_target_registry.h"

// From xla/ffi/ffi_api.h, which includes MLIR headers that the wheel lacks.
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

// Targets that the CPU backend emits, or that XLA's pipeline removes.
bool IsXlaOwn(absl::string_view target) {
  static constexpr absl::string_view kTargets[] = {
      "AllocateBuffer",
      "Cholesky",
      "Eigh",
      "PadToStatic",
      "ProductOfElementaryHouseholderReflectors",
      "Qr",
      "SPMDFullToShardShape",
      "SPMDShardToFullShape",
      "Sharding",
      "SliceToDynamic",
      "TopK",
      "X64Combine",
      "X64SplitHigh",
      "X64SplitLow",
      "annotate_device_placement",
  };
  return std::binary_search(std::begin(kTargets), std::end(kTargets), target) ||
         absl::StartsWith(target, "__onednn$");
}

bool IsRegistered(const std::string& target, bool is_typed) {
  if (is_typed) return xla::ffi::FindHandler(target, kPlatform).ok();
  return xla::CustomCallTargetRegistry::Global()->Lookup(target, kPlatform) !=
         nullptr;
}

bool CallsPython(absl::string_view target) {
  return absl::StrContains(target, "python") &&
         absl::StrContains(target, "callback");
}

// The remedy for a target without an implementation.
std::string Advice(absl::string_view target) {
  if (target == "hloenv.alternative") {
    return "the module still holds undecided alternatives: apply decisions "
           "(HloEnv.apply_alternatives) before compiling";
  }
  if (CallsPython(target)) {
    return "it calls Python in the process that lowered the module "
           "(jax.pure_callback, io_callback or debug.print), which is not "
           "possible here: lower the function without the callback";
  }
  if (target == "LuDecomposition") {
    return "XLA has no expansion for it on the CPU: lower the function for the "
           "CPU instead of the TPU (with jax.jit(f).lower(...) on a CPU "
           "backend it becomes LAPACK's getrf, which jaxlib implements)";
  }
  if (absl::StartsWith(target, "lapack_") ||
      absl::StartsWith(target, "blas_") ||
      absl::StartsWith(target, "cpu_csr_")) {
    return "jaxlib implements it: install jaxlib (pip install 'hloenv[jax]'), "
           "in a version close to the one that lowered the module";
  }
  return "register an implementation with hloenv.runtime.register_target, or "
         "lower the function without it";
}

absl::Status TakeStatus(const XLA_FFI_Api& api, XLA_FFI_Error* error,
                        absl::string_view context) {
  if (error == nullptr) return absl::OkStatus();
  XLA_FFI_Error_GetMessage_Args message = {};
  message.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  message.error = error;
  api.XLA_FFI_Error_GetMessage(&message);
  absl::Status status =
      Error(kArgumentError, absl::StrCat(context, ": ", message.message));
  XLA_FFI_Error_Destroy_Args destroy = {};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api.XLA_FFI_Error_Destroy(&destroy);
  return status;
}

// The handler's metadata, which hold the FFI version that it was built with.
absl::StatusOr<XLA_FFI_Metadata> MetadataOf(const XLA_FFI_Api& api,
                                            const FfiHandler& handler) {
  XLA_FFI_Metadata metadata = {};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  metadata.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension = {};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  frame.api = &api;
  XLA_FFI_Error* error =
      reinterpret_cast<XLA_FFI_Handler*>(handler.execute)(&frame);
  HLOENV_RETURN_IF_ERROR(TakeStatus(api, error, "it returned no metadata"));
  return metadata;
}

// XLA rejects handlers built with a later minor version of the FFI than its
// own. Version 0.3 changed only handlers with state, so a handler without state
// is the same in 0.2 and 0.3.
bool IsNewerButEqual(const XLA_FFI_Api& api, const XLA_FFI_Metadata& metadata,
                     const FfiHandler& handler) {
  constexpr int kLastEqualMinor = 3;
  const bool is_newer =
      metadata.api_version.major_version == api.api_version.major_version &&
      metadata.api_version.minor_version > api.api_version.minor_version;
  const bool has_state =
      handler.instantiate != nullptr || handler.prepare != nullptr ||
      handler.initialize != nullptr ||
      metadata.state_type_id.type_id != XLA_FFI_UNKNOWN_TYPE_ID.type_id;
  return is_newer && !has_state &&
         metadata.api_version.minor_version <= kLastEqualMinor;
}

// Functions that wrap such handlers and report XLA's own version. A handler is
// a plain function without state, so each needs a wrapper function of its own.
class Trampolines {
 public:
  static Trampolines& Get() {
    static auto* trampolines = new Trampolines();
    return *trampolines;
  }

  // Returns the same trampoline for the same handler. ArgumentError when all
  // are in use.
  absl::StatusOr<XLA_FFI_Handler*> For(XLA_FFI_Handler* handler) {
    static const auto kFunctions =
        MakeFunctions(std::make_index_sequence<kCount>());
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < used_; ++i) {
      if (handlers_[i] == handler) return kFunctions[i];
    }
    if (used_ == kCount) {
      return Error(kArgumentError,
                   absl::StrCat("cannot register more than ", kCount,
                                " FFI handlers of a newer jaxlib"));
    }
    handlers_[used_] = handler;
    return kFunctions[used_++];
  }

 private:
  static constexpr size_t kCount = 256;

  template <size_t kIndex>
  static XLA_FFI_Error* Call(XLA_FFI_CallFrame* frame) {
    XLA_FFI_Error* error = handlers_[kIndex](frame);
    XLA_FFI_Extension_Base* extension = frame->extension_start;
    if (error == nullptr && extension != nullptr &&
        extension->type == XLA_FFI_Extension_Metadata) {
      reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)
          ->metadata->api_version.minor_version =
          frame->api->api_version.minor_version;
    }
    return error;
  }

  template <size_t... kIndices>
  static std::array<XLA_FFI_Handler*, kCount> MakeFunctions(
      std::index_sequence<kIndices...>) {
    return {Call<kIndices>...};
  }

  // Static, because a trampoline has only its index.
  static XLA_FFI_Handler* handlers_[kCount];
  std::mutex mutex_;
  size_t used_ = 0;
};

XLA_FFI_Handler* Trampolines::handlers_[Trampolines::kCount];

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

namespace {

absl::Status NotRegistered(const CustomCallTarget& target) {
  return Error(
      kCompileError,
      absl::StrCat("no implementation of the custom call '", target.name,
                   "' (%", target.instruction, ", ", target.num_calls,
                   target.num_calls == 1 ? " call" : " calls",
                   ") is registered on the CPU; ", Advice(target.name)));
}

}  // namespace

absl::Status CheckCustomCalls(const xla::HloModule& module) {
  HLOENV_RETURN_IF_ERROR(CheckOwnCalls(module));
  for (const CustomCallTarget& target : CustomCallTargets(module)) {
    if (!target.is_registered) return NotRegistered(target);
  }
  return absl::OkStatus();
}

absl::Status CheckCallsInJaxlib(const xla::HloModule& module) {
  HLOENV_RETURN_IF_ERROR(CheckOwnCalls(module));
  for (const CustomCallTarget& target : CustomCallTargets(module)) {
    if (CallsPython(target.name)) return NotRegistered(target);
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
  absl::StatusOr<XLA_FFI_Metadata> metadata = MetadataOf(*api, handler);
  HLOENV_RETURN_IF_ERROR(Annotate(
      metadata.status(), kArgumentError,
      absl::StrCat("the function for '", name, "' is not an FFI handler")));
  if (IsNewerButEqual(*api, *metadata, handler)) {
    HLOENV_ASSIGN_OR_RETURN(args.bundle.execute,
                            Trampolines::Get().For(args.bundle.execute));
  }
  return TakeStatus(
      *api, api->XLA_FFI_Handler_Register(&args),
      absl::StrCat("XLA rejected the FFI handler for '", name, "'"));
}

absl::Status RegisterUntypedTarget(const std::string& name, void* function) {
  auto* registry = xla::CustomCallTargetRegistry::Global();
  void* registered = registry->Lookup(name, kPlatform);
  if (registered != nullptr && registered != function) {
    return Error(kArgumentError, absl::StrCat("custom call target '", name,
                                              "' is already registered with "
                                              "another function"));
  }
  if (registered == nullptr) registry->Register(name, function, kPlatform);
  return absl::OkStatus();
}

}  // namespace hloenv
