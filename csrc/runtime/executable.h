// SPDX-License-Identifier: Apache-2.0
// A compiled module and its runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/module.h"

namespace xla {
class BufferAllocation;
class Executable;
class ExecutableRunOptions;
class HloModule;
class MaybeOwningDeviceAddress;
struct ShapeIndex;
namespace cpu {
class CpuExecutable;
}  // namespace cpu
}  // namespace xla

namespace hloenv {

// XLA's generated code may assume this alignment of every buffer.
inline constexpr size_t kBufferAlignment = 64;

// One flat leaf of the inputs or outputs as the caller holds it: elements in
// the order of `array.layout`, each at least a byte.
struct BufferSpec {
  ArraySpec array;
  // What the caller has to provide; an output's memory may be larger than the
  // array. 0 for tokens.
  size_t buffer_bytes = 0;
  bool is_token = false;
  // 1, 2 or 4 when XLA puts several elements into a byte, else 0. Runs convert.
  int packed_bits = 0;
};

// Memory aligned for XLA; freed with FreeBuffer. Never null, also for 0 bytes.
void* AllocateBuffer(size_t bytes);
void FreeBuffer(void* buffer);

struct FreeDeleter {
  void operator()(void* buffer) const { FreeBuffer(buffer); }
};
using OwnedBuffer = std::unique_ptr<void, FreeDeleter>;

// A module that XLA's backend has compiled. Any number of threads may run it at
// the same time.
class Executable {
 public:
  // Compiles `module` as it is: no pass of XLA's pipeline runs, so it has to be
  // the output of one. Errors: CompileError for what can be seen beforehand
  // (custom calls that nobody implements, dynamic shapes, several devices) and
  // for what XLA refuses. XLA does not refuse every module that is not legal
  // for its backend: some end the process, so compile what is not known to be
  // legal in a child process first.
  static absl::StatusOr<std::shared_ptr<Executable>> Compile(
      const Module& module);

  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const std::vector<BufferSpec>& inputs() const { return inputs_; }
  const std::vector<BufferSpec>& outputs() const { return outputs_; }
  int64_t temp_bytes() const { return static_cast<int64_t>(scratch_bytes_); }

  // One run. `inputs` and `outputs` hold one pointer for each spec, null for
  // tokens. An input of `buffer_bytes` bytes is only read, and is used in place
  // when it has kBufferAlignment, else copied. Outputs are memory from
  // AllocateBuffer(buffer_bytes), which no input shares. Errors: ExecuteError.
  absl::Status Run(absl::Span<const void* const> inputs,
                   absl::Span<void* const> outputs);

  // The same with `execute` in the place of XLA's execution: it gets the
  // buffer of each allocation.
  using Execute = absl::FunctionRef<absl::Status(
      xla::cpu::CpuExecutable& executable,
      const xla::ExecutableRunOptions& options,
      absl::Span<const xla::MaybeOwningDeviceAddress> buffers)>;
  absl::Status RunWith(absl::Span<const void* const> inputs,
                       absl::Span<void* const> outputs, Execute execute);

  // The same code once more, linked at another address. Where code lies changes
  // how fast it runs, so timings that matter are spread over several copies.
  // Much cheaper than to compile. Errors: CompileError.
  absl::StatusOr<std::shared_ptr<Executable>> Copy() const;

  // Of the entry and the computations of loops, branches and calls, how many
  // have steps that XLA's executor takes for a graph.
  int64_t NumGraphs() const;

  // The module as XLA's backend compiled it.
  const xla::HloModule& hlo() const;

 private:
  struct Frame;

  Executable();

  static absl::StatusOr<std::shared_ptr<Executable>> Wrap(
      std::unique_ptr<xla::Executable> compiled);

  // Where XLA's allocations live during a run; fills all members below. Errors:
  // CompileError.
  absl::Status PlaceBuffers();
  // `output` is the one whose memory `allocation` is, or -1.
  absl::Status PlaceInput(size_t input, const xla::BufferAllocation& allocation,
                          int64_t output);
  // Notes in `output_of`, by allocation, which output its memory is.
  absl::Status PlaceOutputs(std::vector<int64_t>* output_of);
  // The output at `index` of the result, whose allocation is a constant.
  absl::Status PlaceConstant(size_t output, const xla::ShapeIndex& index);

  std::unique_ptr<Frame> AcquireFrame();
  void ReleaseFrame(std::unique_ptr<Frame> frame);

  // The steps of a run around XLA's execution.
  void SetOutputs(absl::Span<void* const> outputs, Frame* frame) const;
  void SetInputs(absl::Span<const void* const> inputs,
                 absl::Span<void* const> outputs, Frame* frame) const;
  // Memory that XLA may write to, and elements packed as it stores them.
  const void* CopyInput(size_t input, const void* memory, Frame* frame) const;
  void CopyOutputs(const Frame& frame, absl::Span<void* const> outputs) const;

  struct State;  // XLA's classes
  std::unique_ptr<State> state_;

  std::vector<BufferSpec> inputs_;
  std::vector<BufferSpec> outputs_;

  // Where an allocation of XLA's buffer assignment lives during a run.
  struct InputPlace {
    int64_t allocation = -1;  // -1: XLA has no buffer for it
    // The output whose memory serves as this input's, because XLA writes the
    // one over the other; -1 when XLA only reads the input.
    int64_t output = -1;
    // XLA writes over the input, but no output lives there.
    bool is_overwritten = false;
  };
  struct OutputPlace {
    int64_t allocation = -1;
    size_t offset = 0;
    size_t bytes = 0;  // as XLA stores it
    // XLA writes straight into the output's memory; else the value is copied
    // out after the run (constants, parameters, the same value twice).
    bool is_direct = false;
    std::vector<char> constant;  // the value, where XLA gives it no buffer
  };
  std::vector<InputPlace> input_places_;
  std::vector<OutputPlace> output_places_;
  struct ScratchPlace {
    int64_t allocation;
    size_t offset;
    size_t bytes;
  };
  std::vector<ScratchPlace> scratch_places_;
  size_t scratch_bytes_ = 0;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> free_frames_;
};

}  // namespace hloenv
