// SPDX-License-Identifier: Apache-2.0
// Compiles modules with XLA's CPU backend and runs them.
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

// One flat leaf of the inputs or outputs in the caller's memory: elements in
// the order of `array.layout`, each at least one byte.
struct BufferSpec {
  ArraySpec array;
  size_t array_bytes = 0;  // of all elements; 0 for tokens
  // Size that the caller must allocate; for an output it may be larger than the
  // array. 0 for tokens.
  size_t buffer_bytes = 0;
  bool is_token = false;
  // 1, 2 or 4 when XLA packs several elements into a byte, else 0. Run packs
  // and unpacks.
  int packed_bits = 0;
};

// Memory aligned for XLA; freed with FreeBuffer. Never null, also for 0 bytes.
void* AllocateBuffer(size_t bytes);
void FreeBuffer(void* buffer);

struct FreeDeleter {
  void operator()(void* buffer) const { FreeBuffer(buffer); }
};
using OwnedBuffer = std::unique_ptr<void, FreeDeleter>;

// A module compiled by XLA's backend. Any number of threads may run it at the
// same time.
class Executable {
 public:
  // Compiles `module` without running XLA's pipeline, so `module` must be the
  // output of one. Errors: CompileError for unsupported modules (custom calls
  // without implementation, dynamic shapes, several devices) and for errors of
  // XLA's backend. Some modules that are not legal for the backend fail a CHECK
  // and end the process, so compile modules not known to be legal in a child
  // process first.
  static absl::StatusOr<std::shared_ptr<Executable>> Compile(
      const Module& module);

  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const std::vector<BufferSpec>& inputs() const { return inputs_; }
  const std::vector<BufferSpec>& outputs() const { return outputs_; }
  // The inputs whose memory an output may take over, with that output.
  struct Donation {
    size_t input;
    size_t output;
  };
  std::vector<Donation> Donations() const;
  int64_t temp_bytes() const { return static_cast<int64_t>(scratch_bytes_); }

  // Runs the module once. `inputs` and `outputs` hold one pointer for each
  // spec, null for tokens. An input of `buffer_bytes` bytes is not written, and
  // is copied unless it has kBufferAlignment. Outputs are memory from
  // AllocateBuffer(buffer_bytes) that no input shares, except as Donations()
  // has it. Errors: ExecuteError.
  absl::Status Run(absl::Span<const void* const> inputs,
                   absl::Span<void* const> outputs);

  // As Run, but calls `execute` with the buffer of each allocation instead of
  // XLA's ExecuteThunks.
  using Execute = absl::FunctionRef<absl::Status(
      xla::cpu::CpuExecutable& executable,
      const xla::ExecutableRunOptions& options,
      absl::Span<const xla::MaybeOwningDeviceAddress> buffers)>;
  absl::Status RunWith(absl::Span<const void* const> inputs,
                       absl::Span<void* const> outputs, Execute execute);

  // Links the same code at another address. The address affects the speed, so
  // accurate timings use several copies. Much cheaper than a compile. Errors:
  // CompileError, also for code that calls oneDNN.
  absl::StatusOr<std::shared_ptr<Executable>> Copy() const;

  // The number of thunk sequences (of the entry and of the computations of
  // loops, branches and calls) that ThunkExecutor runs as a dataflow graph.
  int64_t NumGraphs() const;

  // The thunks, with those of loops, branches and calls after their caller.
  struct Step {
    std::string name;  // of the instruction
    std::string kind;  // XLA's name of the thunk's kind: "kernel", "dot", ...
  };
  std::vector<Step> Steps() const;

  // The module as XLA's backend compiled it.
  const xla::HloModule& hlo() const;

 private:
  struct Frame;

  Executable();

  static absl::StatusOr<std::shared_ptr<Executable>> Wrap(
      std::unique_ptr<xla::Executable> compiled);

  // Assigns memory to XLA's allocations; fills all members below. Errors:
  // CompileError.
  absl::Status PlaceBuffers();
  // `output` is the output whose memory `allocation` uses, or -1.
  absl::Status PlaceInput(size_t input, const xla::BufferAllocation& allocation,
                          int64_t output);
  // Stores in `output_of`, by allocation, the output whose memory it uses.
  absl::Status PlaceOutputs(std::vector<int64_t>* output_of);
  // For the output at `index` of the result, whose allocation is a constant.
  absl::Status PlaceConstant(size_t output, const xla::ShapeIndex& index);

  std::unique_ptr<Frame> AcquireFrame();
  void ReleaseFrame(std::unique_ptr<Frame> frame);

  // Run before and after XLA's execution.
  void SetOutputs(absl::Span<void* const> outputs, Frame* frame) const;
  void SetInputs(absl::Span<const void* const> inputs,
                 absl::Span<void* const> outputs, Frame* frame) const;
  // A copy that XLA may write to, with elements packed as XLA stores them.
  const void* CopyInput(size_t input, const void* memory, Frame* frame) const;
  void CopyOutputs(const Frame& frame, absl::Span<void* const> outputs) const;

  struct State;  // XLA's classes
  std::unique_ptr<State> state_;

  std::vector<BufferSpec> inputs_;
  std::vector<BufferSpec> outputs_;

  // The memory of each input, output and temporary allocation during a run.
  struct InputPlace {
    int64_t allocation = -1;  // -1: XLA has no buffer for it
    // The output whose memory this input uses, because XLA writes that output
    // in place of the input; -1 if there is none.
    int64_t output = -1;
    // XLA overwrites the input, but not with an output.
    bool is_overwritten = false;
  };
  struct OutputPlace {
    int64_t allocation = -1;
    size_t offset = 0;
    size_t bytes = 0;  // as XLA stores it
    // XLA writes directly to the output's memory; else the value is copied
    // after the run (constants, parameters, the same value twice).
    bool is_direct = false;
    std::vector<char> constant;  // the value, if XLA gives it no buffer
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
  bool calls_onednn_ = false;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> free_frames_;
};

}  // namespace hloenv
