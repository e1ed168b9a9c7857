// SPDX-License-Identifier: Apache-2.0
#include "runtime/ffi_call.h"

#include <cstring>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "support/native_scope.h"
#include "support/status.h"
#include "xla/ffi/api/c_api.h"

namespace hloenv {
namespace {

struct Published {
  std::mutex mutex;
  absl::flat_hash_map<std::string, std::shared_ptr<Executable>> by_key;
};

// Never destroyed: calls may come until the process ends.
Published& AllPublished() {
  static auto* published = new Published();
  return *published;
}

std::shared_ptr<Executable> FindPublished(absl::string_view key) {
  Published& published = AllPublished();
  std::lock_guard<std::mutex> lock(published.mutex);
  const auto found = published.by_key.find(key);
  return found == published.by_key.end() ? nullptr : found->second;
}

absl::Status Mismatch(absl::string_view what) {
  return Error(kExecuteError,
               absl::StrCat("hloenv's custom call does not fit its module: ",
                            what, "; trace the function again"));
}

// The value of the string attribute `key`; empty if there is none.
absl::string_view KeyOf(const XLA_FFI_Attrs& attrs) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    const absl::string_view name(attrs.names[i]->ptr, attrs.names[i]->len);
    if (name != "key" || attrs.types[i] != XLA_FFI_AttrType_STRING) continue;
    const auto* value = static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]);
    return absl::string_view(value->ptr, value->len);
  }
  return "";
}

// The memory of `buffer`, which holds an array of `spec`.
absl::StatusOr<void*> MemoryOf(const void* argument, const BufferSpec& spec) {
  const auto& buffer = *static_cast<const XLA_FFI_Buffer*>(argument);
  const absl::Span<const int64_t> dims(buffer.dims,
                                       static_cast<size_t>(buffer.rank));
  if (dims != absl::MakeConstSpan(spec.array.dims)) {
    return Mismatch("an array has another shape");
  }
  return buffer.data;
}

// CallOutputs in the caller's memory. XLA may need more memory for an output
// than its array has; such an output is copied.
class CallOutputs {
 public:
  explicit CallOutputs(const Executable& executable)
      : executable_(executable) {}

  void Add(void* memory) {
    const BufferSpec& spec = executable_.outputs()[pointers_.size()];
    const bool is_aligned =
        reinterpret_cast<uintptr_t>(memory) % kBufferAlignment == 0;
    if (is_aligned && spec.buffer_bytes <= spec.array_bytes) {
      pointers_.push_back(memory);
      return;
    }
    owned_.emplace_back(AllocateBuffer(spec.buffer_bytes));
    copies_.push_back({memory, owned_.back().get(), spec.array_bytes});
    pointers_.push_back(owned_.back().get());
  }
  absl::Span<void* const> pointers() const { return pointers_; }
  void Finish() const {
    for (const Copy& copy : copies_) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  const Executable& executable_;
  std::vector<void*> pointers_;
  std::vector<OwnedBuffer> owned_;
  std::vector<Copy> copies_;
};

absl::Status RunCall(const XLA_FFI_CallFrame& frame) {
  HLOENV_RETURN_IF_ERROR(CheckNotForkedInXla());
  const absl::string_view key = KeyOf(frame.attrs);
  const std::shared_ptr<Executable> executable = FindPublished(key);
  if (executable == nullptr) {
    return Error(
        kExecuteError,
        absl::StrCat("hloenv's custom call '", key,
                     "' was compiled in another process; load the decided "
                     "module with hloenv.load before calling the function"));
  }
  const auto num_inputs = static_cast<int64_t>(executable->inputs().size());
  const auto num_outputs = static_cast<int64_t>(executable->outputs().size());
  if (frame.args.size != num_inputs || frame.rets.size != num_outputs) {
    return Mismatch(absl::StrCat(frame.args.size, " arguments and ",
                                 frame.rets.size, " results"));
  }
  std::vector<const void*> inputs;
  for (int64_t i = 0; i < num_inputs; ++i) {
    HLOENV_ASSIGN_OR_RETURN(
        void* memory, MemoryOf(frame.args.args[i], executable->inputs()[i]));
    inputs.push_back(memory);
  }
  CallOutputs outputs(*executable);
  for (int64_t i = 0; i < num_outputs; ++i) {
    HLOENV_ASSIGN_OR_RETURN(
        void* memory, MemoryOf(frame.rets.rets[i], executable->outputs()[i]));
    outputs.Add(memory);
  }
  HLOENV_RETURN_IF_ERROR(executable->Run(inputs, outputs.pointers()));
  outputs.Finish();
  return absl::OkStatus();
}

XLA_FFI_Error* ToFfiError(const XLA_FFI_Api& api, const absl::Status& status) {
  const std::string message(status.message());
  XLA_FFI_Error_Create_Args args;
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.extension_start = nullptr;
  args.message = message.c_str();
  args.errc = XLA_FFI_Error_Code_INTERNAL;
  return api.XLA_FFI_Error_Create(&args);
}

XLA_FFI_Error* Handle(XLA_FFI_CallFrame* frame) {
  // XLA asks for the version of the interface before the first call.
  const XLA_FFI_Extension_Base* extension = frame->extension_start;
  if (extension != nullptr && extension->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata& metadata =
        *reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)
             ->metadata;
    metadata.api_version.major_version = XLA_FFI_API_MAJOR;
    metadata.api_version.minor_version = XLA_FFI_API_MINOR;
    metadata.traits = 0;
    metadata.state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
    return nullptr;
  }
  NativeScope scope;
  absl::Status status;
  // Its caller has another C++ runtime.
  try {
    status = RunCall(*frame);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  return status.ok() ? nullptr : ToFfiError(*frame->api, status);
}

}  // namespace

void* FfiCallHandler() { return reinterpret_cast<void*>(&Handle); }

void PublishExecutable(const std::string& key,
                       std::shared_ptr<Executable> executable) {
  Published& published = AllPublished();
  std::lock_guard<std::mutex> lock(published.mutex);
  published.by_key.try_emplace(key, std::move(executable));
}

void RetractExecutable(const std::string& key) {
  Published& published = AllPublished();
  std::shared_ptr<Executable> executable;  // freed without the lock
  std::lock_guard<std::mutex> lock(published.mutex);
  const auto found = published.by_key.find(key);
  if (found == published.by_key.end()) return;
  executable = std::move(found->second);
  published.by_key.erase(found);
}

}  // namespace hloenv
