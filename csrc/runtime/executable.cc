// SPDX-License-Identifier: Apache-2.0
#include "runtime/executable.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <optional>

#include "backend/dot_lowering.h"
#include "backend/thunk_order.h"
#include "runtime/cpu_client.h"
#include "runtime/custom_calls.h"
#include "runtime/narrow_types.h"
#include "runtime/one_device.h"
#include "runtime/own_calls.h"
#include "support/cpu_executable.h"
#include "support/memory_maps.h"
#include "support/quiet.h"
#include "support/status.h"
#include "tsl/platform/denormal.h"
#include "tsl/platform/setround.h"
#include "xla/executable_run_options.h"
#include "xla/service/compiler.h"
#include "xla/util.h"

namespace hloenv {
namespace {

using xla::BufferAllocation;
using xla::HloInstruction;
using xla::Shape;
using xla::ShapeIndex;
using xla::cpu::CpuExecutable;

size_t RoundUp(size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Bytes of a leaf as XLA stores it.
size_t StoredBytes(const BufferSpec& spec) {
  if (spec.packed_bits == 0) return spec.buffer_bytes;
  const size_t per_byte = 8 / spec.packed_bits;
  return (spec.buffer_bytes + per_byte - 1) / per_byte;
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kBufferAlignment == 0;
}

// Calls `visit(leaf, index)` for each leaf that is not a tuple, in XLA's order.
template <typename Visit>
void ForEachLeaf(const Shape& shape, Visit visit) {
  xla::ShapeUtil::ForEachSubshape(
      shape, [&](const Shape& leaf, const ShapeIndex& index) {
        if (!leaf.IsTuple()) visit(leaf, index);
      });
}

absl::StatusOr<std::vector<BufferSpec>> SpecsOf(const Shape& shape) {
  std::vector<BufferSpec> specs;
  absl::Status status;
  const std::vector<ArraySpec> arrays = FlatSpecs(shape);
  size_t i = 0;
  ForEachLeaf(shape, [&](const Shape& leaf, const ShapeIndex&) {
    BufferSpec spec;
    spec.array = arrays[i++];
    spec.is_token = leaf.IsToken();
    if (!leaf.IsArray() && !leaf.IsToken()) {
      status = Error(kCompileError,
                     absl::StrCat("an input or output of type ",
                                  leaf.ToString(), " cannot be a numpy array"));
    } else if (leaf.IsArray()) {
      if (!leaf.is_static()) {
        status = Error(
            kCompileError,
            absl::StrCat("an input or output has the dynamic shape ",
                         leaf.ToString(), "; hloenv runs static shapes only"));
      }
      spec.buffer_bytes = xla::ShapeUtil::ByteSizeOf(leaf);
      if (leaf.has_layout()) {
        const int64_t bits = leaf.layout().element_size_in_bits();
        if (bits > 0 && bits < 8) {
          spec.packed_bits = static_cast<int>(bits);
          spec.buffer_bytes = xla::ShapeUtil::ElementsIn(leaf);
        }
      }
      spec.array_bytes = spec.buffer_bytes;
    }
    specs.push_back(std::move(spec));
  });
  HLOENV_RETURN_IF_ERROR(status);
  return specs;
}

absl::Status CheckRunnable(const xla::HloModule& module) {
  if (module.config().replica_count() > 1 ||
      module.config().num_partitions() > 1) {
    return Error(kCompileError,
                 absl::StrCat("module '", module.name(), "' is for ",
                              module.config().replica_count(), " replicas and ",
                              module.config().num_partitions(),
                              " partitions; hloenv runs on one device"));
  }
  HLOENV_RETURN_IF_ERROR(CheckRunsAlone(module));
  HLOENV_RETURN_IF_ERROR(CheckNarrowTypes(module));
  return CheckCustomCalls(module);
}

}  // namespace

void* AllocateBuffer(size_t bytes) {
  void* buffer = std::aligned_alloc(kBufferAlignment,
                                    std::max(RoundUp(bytes), kBufferAlignment));
  if (buffer == nullptr) throw std::bad_alloc();
  return buffer;
}

void FreeBuffer(void* buffer) { std::free(buffer); }

struct Executable::State {
  std::unique_ptr<xla::Executable> owner;
  CpuExecutable* cpu = nullptr;
};

// The memory of one run; reused by later runs.
struct Executable::Frame {
  std::vector<xla::MaybeOwningDeviceAddress> table;
  OwnedBuffer scratch;
  std::vector<OwnedBuffer> input_copies;  // by input; null until needed
  xla::ExecutableRunOptions options;

  void Set(int64_t allocation, const void* memory, size_t bytes) {
    table[allocation] =
        stream_executor::DeviceAddressBase(const_cast<void*>(memory), bytes);
  }
};

Executable::Executable() = default;
Executable::~Executable() = default;

absl::StatusOr<std::shared_ptr<Executable>> Executable::Compile(
    const Module& module) {
  QuietScope scope;
  HLOENV_RETURN_IF_ERROR(CheckCompilerThreads());
  HLOENV_RETURN_IF_ERROR(CheckMemoryMapsLeft());
  HLOENV_ASSIGN_OR_RETURN(xla::Compiler * compiler, CpuCompiler());
  HLOENV_RETURN_IF_ERROR(CheckRunnable(module.hlo()));
  for (const HloInstruction* parameter :
       module.hlo().entry_computation()->parameter_instructions()) {
    HLOENV_RETURN_IF_ERROR(SpecsOf(parameter->shape()).status());
  }
  HLOENV_RETURN_IF_ERROR(SpecsOf(module.hlo().result_shape()).status());
  std::unique_ptr<xla::HloModule> hlo = module.CloneHlo();
  DotLoweringScope dots;
  HLOENV_RETURN_IF_ERROR(dots.Enter(hlo.get()));
  ThunkOrderScope execution;
  HLOENV_RETURN_IF_ERROR(execution.Enter(*hlo));
  absl::StatusOr<std::unique_ptr<xla::Executable>> compiled =
      compiler->RunBackend(std::move(hlo), /*executor=*/nullptr,
                           xla::Compiler::CompileOptions{});
  if (!compiled.ok()) {
    return Annotate(compiled.status(), kCompileError,
                    absl::StrCat("XLA's backend cannot compile module '",
                                 module.name(), "'"));
  }
  return Wrap(*std::move(compiled));
}

absl::StatusOr<std::shared_ptr<Executable>> Executable::Copy() const {
  QuietScope scope;
  HLOENV_RETURN_IF_ERROR(CheckMemoryMapsLeft());
  HLOENV_ASSIGN_OR_RETURN(xla::Compiler * compiler, CpuCompiler());
  if (calls_onednn_) {
    // XLA exports these calls without what they hold, and fails to load them.
    return Error(kCompileError,
                 absl::StrCat("the code of module '", hlo().name(),
                              "' calls oneDNN and cannot be linked again"));
  }
  ThunkOrderScope execution;
  HLOENV_RETURN_IF_ERROR(execution.Enter(hlo()));
  auto load = [&]() -> absl::StatusOr<std::unique_ptr<xla::Executable>> {
    HLOENV_ASSIGN_OR_RETURN(std::unique_ptr<xla::CompiledModule> code,
                            compiler->Export(state_->owner.get()));
    return std::move(*code).LoadExecutable();
  };
  absl::StatusOr<std::unique_ptr<xla::Executable>> loaded = load();
  if (!loaded.ok()) {
    return Annotate(loaded.status(), kCompileError,
                    absl::StrCat("the code of module '", hlo().name(),
                                 "' cannot be linked again"));
  }
  return Wrap(*std::move(loaded));
}

int64_t Executable::NumGraphs() const {
  return hloenv::NumGraphs(state_->cpu->thunks());
}

std::vector<Executable::Donation> Executable::Donations() const {
  std::vector<Donation> donations;
  for (size_t i = 0; i < input_places_.size(); ++i) {
    if (input_places_[i].output < 0 || inputs_[i].is_token) continue;
    donations.push_back({i, static_cast<size_t>(input_places_[i].output)});
  }
  return donations;
}

std::vector<Executable::Step> Executable::Steps() const {
  std::vector<Step> steps;
  const std::function<void(const xla::cpu::ThunkSequence&)> add =
      [&](const xla::cpu::ThunkSequence& sequence) {
        for (const auto& thunk : sequence) {
          steps.push_back(
              {thunk->info().op_name,
               std::string(xla::cpu::Thunk::KindToString(thunk->kind()))});
          for (const auto& nested : thunk->nested_thunks()) {
            add(*nested.second);
          }
        }
      };
  add(state_->cpu->thunks().thunk_sequence());
  return steps;
}

absl::StatusOr<std::shared_ptr<Executable>> Executable::Wrap(
    std::unique_ptr<xla::Executable> compiled) {
  std::shared_ptr<Executable> executable(new Executable());
  executable->state_ = std::make_unique<State>();
  executable->state_->owner = std::move(compiled);
  executable->state_->cpu =
      dynamic_cast<CpuExecutable*>(executable->state_->owner.get());
  if (executable->state_->cpu == nullptr ||
      !executable->state_->cpu->has_thunks()) {
    return Error(kCompileError,
                 "XLA's host compiler produced no thunks, but hloenv runs only "
                 "thunks");
  }
  executable->calls_onednn_ = CallsOneDnn(executable->hlo());
  HLOENV_RETURN_IF_ERROR(executable->PlaceBuffers());
  return executable;
}

absl::Status Executable::PlaceBuffers() {
  const xla::BufferAssignment& assignment = state_->cpu->buffer_assignment();
  const xla::HloComputation* entry =
      state_->owner->module().entry_computation();
  // The input leaf of each entry parameter's allocation.
  absl::flat_hash_map<std::pair<int64_t, ShapeIndex>, size_t> input_of;
  for (const HloInstruction* parameter : entry->parameter_instructions()) {
    ForEachLeaf(parameter->shape(), [&](const Shape&, const ShapeIndex& index) {
      input_of[{parameter->parameter_number(), index}] = input_of.size();
    });
    HLOENV_ASSIGN_OR_RETURN(std::vector<BufferSpec> specs,
                            SpecsOf(parameter->shape()));
    for (BufferSpec& spec : specs) inputs_.push_back(std::move(spec));
  }
  input_places_.resize(inputs_.size());
  // The output whose memory each allocation uses; -1 for none.
  std::vector<int64_t> output_of(assignment.Allocations().size(), -1);
  HLOENV_RETURN_IF_ERROR(PlaceOutputs(&output_of));

  for (const BufferAllocation& allocation : assignment.Allocations()) {
    const int64_t output = output_of[allocation.index()];
    if (allocation.is_entry_computation_parameter()) {
      auto found = input_of.find(
          {allocation.parameter_number(), allocation.param_shape_index()});
      // A tuple's own buffer holds pointers, which thunks do not read.
      if (found == input_of.end()) continue;
      HLOENV_RETURN_IF_ERROR(PlaceInput(found->second, allocation, output));
      continue;
    }
    if (allocation.is_constant() || allocation.is_thread_local()) continue;
    if (output >= 0) continue;
    const size_t bytes = static_cast<size_t>(allocation.size());
    scratch_places_.push_back({allocation.index(), scratch_bytes_, bytes});
    scratch_bytes_ += RoundUp(bytes);
  }
  return absl::OkStatus();
}

absl::Status Executable::PlaceInput(size_t input,
                                    const BufferAllocation& allocation,
                                    int64_t output) {
  InputPlace& place = input_places_[input];
  place.allocation = allocation.index();
  place.output = output;
  place.is_overwritten = output < 0 && !allocation.is_readonly();
  const size_t bytes = StoredBytes(inputs_[input]);
  if (static_cast<size_t>(allocation.size()) > bytes) {
    return Error(kCompileError, absl::StrCat("XLA needs ", allocation.size(),
                                             " bytes for input ", input,
                                             ", which has ", bytes));
  }
  return absl::OkStatus();
}

absl::Status Executable::PlaceOutputs(std::vector<int64_t>* output_of) {
  const xla::BufferAssignment& assignment = state_->cpu->buffer_assignment();
  const HloInstruction* root =
      state_->owner->module().entry_computation()->root_instruction();
  HLOENV_ASSIGN_OR_RETURN(outputs_, SpecsOf(root->shape()));
  output_places_.resize(outputs_.size());
  absl::Status status;
  size_t leaf_index = 0;
  ForEachLeaf(root->shape(), [&](const Shape& leaf, const ShapeIndex& index) {
    const size_t i = leaf_index++;
    if (leaf.IsToken() || outputs_[i].buffer_bytes == 0) return;
    OutputPlace& place = output_places_[i];
    absl::StatusOr<BufferAllocation::Slice> slice =
        assignment.GetUniqueSlice(root, index);
    if (!slice.ok()) {
      status = Annotate(slice.status(), kCompileError,
                        absl::StrCat("output ", i, " has no unique buffer"));
      return;
    }
    const BufferAllocation& allocation = *slice->allocation();
    place.allocation = allocation.index();
    place.offset = slice->offset();
    place.bytes = StoredBytes(outputs_[i]);
    if (allocation.is_constant()) {
      const absl::Status constant = PlaceConstant(i, index);
      if (!constant.ok()) status = constant;
      return;
    }
    if (allocation.is_readonly() || allocation.is_thread_local()) return;
    const bool is_taken = (*output_of)[allocation.index()] >= 0;
    if (place.offset != 0 || is_taken || outputs_[i].packed_bits != 0) return;
    place.is_direct = true;
    (*output_of)[allocation.index()] = static_cast<int64_t>(i);
    outputs_[i].buffer_bytes = std::max<size_t>(
        outputs_[i].buffer_bytes, static_cast<size_t>(allocation.size()));
  });
  return status;
}

absl::Status Executable::PlaceConstant(size_t output, const ShapeIndex& index) {
  const CpuExecutable& cpu = *state_->cpu;
  OutputPlace& place = output_places_[output];
  const size_t number = static_cast<size_t>(place.allocation);
  const bool has_buffer =
      number < cpu.constants().size() &&
      cpu.constants()[number].AsDeviceAddress().opaque() != nullptr;
  if (has_buffer) return absl::OkStatus();
  // The constant is part of the code: copy its value from the module.
  const HloInstruction* root =
      state_->owner->module().entry_computation()->root_instruction();
  const auto& values = cpu.buffer_assignment()
                           .dataflow_analysis()
                           .GetValueSet(root, index)
                           .values();
  const HloInstruction* source = values.front()->instruction();
  if (source->opcode() != xla::HloOpcode::kConstant) {
    return Error(
        kCompileError,
        absl::StrCat("output ", output, " is in a constant buffer, but '",
                     source->name(), "' is not a constant"));
  }
  const auto* data = static_cast<const char*>(
      source->literal().untyped_data(values.front()->index()));
  place.constant.assign(data, data + place.bytes);
  return absl::OkStatus();
}

std::unique_ptr<Executable::Frame> Executable::AcquireFrame() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free_frames_.empty()) {
      std::unique_ptr<Frame> frame = std::move(free_frames_.back());
      free_frames_.pop_back();
      return frame;
    }
  }
  auto frame = std::make_unique<Frame>();
  const CpuExecutable& cpu = *state_->cpu;
  frame->table.resize(cpu.buffer_assignment().Allocations().size());
  for (size_t i = 0; i < cpu.constants().size(); ++i) {
    frame->table[i] = cpu.constants()[i].AsDeviceAddress();
  }
  frame->scratch.reset(AllocateBuffer(scratch_bytes_));
  for (const ScratchPlace& place : scratch_places_) {
    frame->table[place.allocation] = stream_executor::DeviceAddressBase(
        static_cast<char*>(frame->scratch.get()) + place.offset, place.bytes);
  }
  frame->input_copies.resize(inputs_.size());
  frame->options.set_device_ordinal(0);
  frame->options.set_device_assignment(&OneDevice());
  return frame;
}

void Executable::ReleaseFrame(std::unique_ptr<Frame> frame) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_frames_.push_back(std::move(frame));
}

const xla::HloModule& Executable::hlo() const {
  return state_->owner->module();
}

absl::Status Executable::Run(absl::Span<const void* const> inputs,
                             absl::Span<void* const> outputs) {
  return RunWith(
      inputs, outputs,
      [](CpuExecutable& executable, const xla::ExecutableRunOptions& options,
         absl::Span<const xla::MaybeOwningDeviceAddress> buffers) {
        return executable.ExecuteThunks(&options, buffers);
      });
}

absl::Status Executable::RunWith(absl::Span<const void* const> inputs,
                                 absl::Span<void* const> outputs,
                                 Execute execute) {
  std::unique_ptr<Frame> frame = AcquireFrame();
  // Set on every run: a forked process has another pool.
  frame->options.set_intra_op_thread_pool(IntraOpThreads());
  SetOutputs(outputs, frame.get());
  SetInputs(inputs, outputs, frame.get());
  absl::Status status;
  {
    std::optional<QuietScope> scope;  // it logs its first call
    if (calls_onednn_) scope.emplace();
    // As in XLA's own runtimes, so that results do not depend on the caller.
    tsl::port::ScopedFlushDenormal flush;
    tsl::port::ScopedSetRound round(FE_TONEAREST);
    status = execute(*state_->cpu, frame->options, frame->table);
  }
  if (status.ok()) CopyOutputs(*frame, outputs);
  ReleaseFrame(std::move(frame));
  return Annotate(status, kExecuteError,
                  absl::StrCat("running module '",
                               state_->owner->module().name(), "' failed"));
}

void Executable::SetOutputs(absl::Span<void* const> outputs,
                            Frame* frame) const {
  for (size_t i = 0; i < output_places_.size(); ++i) {
    if (!output_places_[i].is_direct) continue;
    frame->Set(output_places_[i].allocation, outputs[i],
               outputs_[i].buffer_bytes);
  }
}

void Executable::SetInputs(absl::Span<const void* const> inputs,
                           absl::Span<void* const> outputs,
                           Frame* frame) const {
  for (size_t i = 0; i < input_places_.size(); ++i) {
    const InputPlace& place = input_places_[i];
    if (place.allocation < 0 || inputs_[i].is_token) continue;
    const size_t bytes = StoredBytes(inputs_[i]);
    if (place.output >= 0) {
      // The same memory if the caller gives the input away.
      if (outputs[place.output] != inputs[i]) {
        std::memcpy(outputs[place.output], inputs[i], bytes);
      }
      continue;
    }
    const bool is_packed = inputs_[i].packed_bits != 0;
    const bool needs_copy =
        place.is_overwritten || is_packed || !IsAligned(inputs[i]);
    frame->Set(place.allocation,
               needs_copy ? CopyInput(i, inputs[i], frame) : inputs[i], bytes);
  }
}

const void* Executable::CopyInput(size_t input, const void* memory,
                                  Frame* frame) const {
  const BufferSpec& spec = inputs_[input];
  const size_t bytes = StoredBytes(spec);
  OwnedBuffer& copy = frame->input_copies[input];
  if (copy == nullptr) copy.reset(AllocateBuffer(bytes));
  if (spec.packed_bits != 0) {
    xla::PackIntN(spec.packed_bits,
                  absl::MakeConstSpan(static_cast<const char*>(memory),
                                      spec.buffer_bytes),
                  absl::MakeSpan(static_cast<char*>(copy.get()), bytes));
  } else {
    std::memcpy(copy.get(), memory, bytes);
  }
  return copy.get();
}

void Executable::CopyOutputs(const Frame& frame,
                             absl::Span<void* const> outputs) const {
  for (size_t i = 0; i < output_places_.size(); ++i) {
    const OutputPlace& place = output_places_[i];
    if (place.is_direct || place.bytes == 0) continue;
    const char* source = place.constant.data();
    if (place.constant.empty()) {
      source = static_cast<const char*>(
                   frame.table[place.allocation].AsDeviceAddress().opaque()) +
               place.offset;
    }
    if (outputs_[i].packed_bits != 0) {
      xla::UnpackIntN(outputs_[i].packed_bits,
                      absl::MakeConstSpan(source, place.bytes),
                      absl::MakeSpan(static_cast<char*>(outputs[i]),
                                     outputs_[i].buffer_bytes));
    } else {
      std::memcpy(outputs[i], source, place.bytes);
    }
  }
}

}  // namespace hloenv
