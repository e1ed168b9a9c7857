// SPDX-License-Identifier: Apache-2.0
#define EIGEN_USE_THREADS

#include "runtime/timing.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <utility>

#include "support/cpu_executable.h"
#include "support/fork.h"
#include "support/status.h"
#include "unsupported/Eigen/CXX11/Tensor"
#include "xla/backends/cpu/runtime/buffer_allocations.h"
#include "xla/backends/cpu/runtime/thread_pool_task_runner.h"
#include "xla/backends/cpu/runtime/thunk.h"
#include "xla/executable_run_options.h"
#include "xla/runtime/buffer_use.h"
#include "xla/tsl/concurrency/async_value_ref.h"

namespace hloenv {
namespace {

using Clock = std::chrono::steady_clock;
using xla::cpu::CpuExecutable;
using xla::cpu::Thunk;

// Memory for the outputs of one executable.
class Outputs {
 public:
  explicit Outputs(const Executable& executable) {
    for (const BufferSpec& spec : executable.outputs()) {
      owners_.emplace_back(AllocateBuffer(spec.buffer_bytes));
      pointers_.push_back(owners_.back().get());
    }
  }
  absl::Span<void* const> pointers() const { return pointers_; }

 private:
  std::vector<OwnedBuffer> owners_;
  std::vector<void*> pointers_;
};

double Nanoseconds(Clock::duration duration) {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}

// Duration of two clock reads, in ns.
double ClockCost() {
  static const double cost = [] {
    double least = 1e9;
    for (int i = 0; i < 1000; ++i) {
      const auto start = Clock::now();
      least = std::min(least, Nanoseconds(Clock::now() - start));
    }
    return least;
  }();
  return cost;
}

// YNNPACK's pool over the intra-op threads. Lives as long as the process.
absl::StatusOr<Thunk::YnnParams*> YnnThreads(
    const xla::ExecutableRunOptions& options) {
  using Key = const Eigen::ThreadPoolDevice*;
  static auto* params =
      new absl::flat_hash_map<Key, std::unique_ptr<Thunk::YnnParams>>();
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kThreads));
  std::unique_ptr<Thunk::YnnParams>& made =
      (*params)[options.intra_op_thread_pool()];
  if (made == nullptr) {
    HLOENV_ASSIGN_OR_RETURN(Thunk::YnnParams created,
                            Thunk::YnnParams::Create(&options));
    made = std::make_unique<Thunk::YnnParams>(std::move(created));
  }
  return made.get();
}

// Saves the memory that a thunk both reads and writes (such as an elementwise
// kernel that reuses an operand's buffer), because a second run would read the
// results of the first.
class Overwritten {
 public:
  Overwritten(const Thunk& thunk,
              const xla::cpu::BufferAllocations& allocations) {
    const Thunk::BufferUses uses = thunk.buffer_uses();
    for (const xla::BufferUse& use : uses) {
      const auto overlaps = [&use](const xla::BufferUse& other) {
        return other.access() == xla::BufferUse::MemoryAccess::kRead &&
               other.slice().OverlapsWith(use.slice());
      };
      const bool is_written =
          use.access() == xla::BufferUse::MemoryAccess::kWrite;
      if (!is_written || use.slice().size() == 0 ||
          !(use.HasDefinedContentsOnInput() ||
            absl::c_any_of(uses, overlaps))) {
        continue;
      }
      const auto* memory = static_cast<const char*>(
          allocations.GetDeviceAddressUnchecked(use.slice()).opaque());
      saved_.push_back(
          {const_cast<char*>(memory), std::string(memory, use.slice().size())});
    }
  }
  void Restore() const {
    for (const auto& [memory, content] : saved_) {
      std::memcpy(memory, content.data(), content.size());
    }
  }

 private:
  std::vector<std::pair<char*, std::string>> saved_;
};

// Whether a second run on the same memory does the same work. Other kinds are
// loops, or run code that is not XLA's.
bool IsRepeatable(Thunk::Kind kind) {
  switch (kind) {
    case Thunk::Kind::kConvolution:
    case Thunk::Kind::kCopy:
    case Thunk::Kind::kDot:
    case Thunk::Kind::kKernel:
      return true;
    default:
      return false;
  }
}

// Runs every thunk of `executable` by itself; appends one duration for each.
absl::Status RunSteps(CpuExecutable& executable,
                      const xla::ExecutableRunOptions& options,
                      absl::Span<const xla::MaybeOwningDeviceAddress> buffers,
                      bool is_warm, std::vector<double>* durations_ns) {
  const Eigen::ThreadPoolDevice* threads = options.intra_op_thread_pool();
  xla::cpu::BufferAllocations allocations(buffers);
  xla::cpu::ThreadPoolTaskRunner runner(threads->getPool());
  HLOENV_ASSIGN_OR_RETURN(Thunk::CustomCallExecuteParams custom_calls,
                          Thunk::CustomCallExecuteParams::Create(&options));
  Thunk::ExecuteParams params;
  params.function_library = executable.function_library();
  params.buffer_allocations = &allocations;
  params.intra_op_threadpool = threads;
  params.task_runner = &runner;
  params.custom_call_params = &custom_calls;
  params.device_ordinal = options.device_ordinal();
  if (executable.has_ynn_fusions()) {
    HLOENV_ASSIGN_OR_RETURN(params.ynn_params, YnnThreads(options));
  }
  const double clock_cost = ClockCost();
  for (const std::unique_ptr<Thunk>& thunk :
       executable.thunks().thunk_sequence()) {
    if (is_warm && IsRepeatable(thunk->kind())) {
      const Overwritten overwritten(*thunk, allocations);
      tsl::BlockUntilReady(thunk->Execute(params));
      overwritten.Restore();
    }
    const auto start = Clock::now();
    auto event = thunk->Execute(params);
    tsl::BlockUntilReady(event);
    const auto end = Clock::now();
    if (event.IsError()) return event.GetError();
    durations_ns->push_back(
        std::max(Nanoseconds(end - start) - clock_cost, 0.0));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int64_t>>> TimeRuns(
    absl::Span<Executable* const> executables,
    absl::Span<const std::vector<const void*>> inputs, const TimingPlan& plan) {
  std::vector<Outputs> outputs;
  std::vector<std::vector<int64_t>> durations_ns(executables.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < executables.size(); ++i) {
    outputs.emplace_back(*executables[i]);
    durations_ns[i].reserve(plan.rounds);
    order.push_back(i);
  }
  std::mt19937_64 random(plan.seed);
  for (int64_t round = -plan.warmup; round < plan.rounds; ++round) {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random() % i]);
    }
    for (size_t i : order) {
      const auto start = Clock::now();
      for (int64_t run = 0; run < plan.batch[i]; ++run) {
        HLOENV_RETURN_IF_ERROR(
            executables[i]->Run(inputs[i], outputs[i].pointers()));
      }
      const auto end = Clock::now();
      if (round < 0) continue;
      durations_ns[i].push_back(std::llround(
          Nanoseconds(end - start) / static_cast<double>(plan.batch[i])));
    }
  }
  return durations_ns;
}

absl::StatusOr<StepTimes> TimeSteps(Executable& executable,
                                    absl::Span<const void* const> inputs,
                                    int64_t warmup, int64_t rounds,
                                    bool is_warm) {
  StepTimes times;
  const Outputs outputs(executable);
  std::vector<double> ignored;
  for (int64_t round = -warmup; round < rounds; ++round) {
    ignored.clear();
    HLOENV_RETURN_IF_ERROR(executable.RunWith(
        inputs, outputs.pointers(),
        [&](CpuExecutable& cpu, const xla::ExecutableRunOptions& options,
            absl::Span<const xla::MaybeOwningDeviceAddress> buffers) {
          if (round == -warmup) {
            for (const auto& thunk : cpu.thunks().thunk_sequence()) {
              times.names.push_back(thunk->info().op_name);
            }
          }
          return RunSteps(cpu, options, buffers, is_warm,
                          round < 0 ? &ignored : &times.durations_ns);
        }));
    // A separate run, which sets the inputs again: the thunks may have
    // overwritten them.
    HLOENV_RETURN_IF_ERROR(executable.RunWith(
        inputs, outputs.pointers(),
        [&](CpuExecutable& cpu, const xla::ExecutableRunOptions& options,
            absl::Span<const xla::MaybeOwningDeviceAddress> buffers) {
          const auto start = Clock::now();
          HLOENV_RETURN_IF_ERROR(cpu.ExecuteThunks(&options, buffers));
          if (round >= 0) {
            times.totals_ns.push_back(Nanoseconds(Clock::now() - start));
          }
          return absl::OkStatus();
        }));
  }
  return times;
}

}  // namespace hloenv
