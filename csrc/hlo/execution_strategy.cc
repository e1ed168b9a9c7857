// SPDX-License-Identifier: Apache-2.0
#include "hlo/execution_strategy.h"

#include <algorithm>
#include <utility>

#include "support/cpu_executable.h"
#include "support/hooks.h"
#include "support/status.h"
#include "xla/backends/cpu/runtime/call_thunk.h"
#include "xla/backends/cpu/runtime/conditional_thunk.h"
#include "xla/backends/cpu/runtime/thunk.h"
#include "xla/backends/cpu/runtime/thunk_executor.h"
#include "xla/backends/cpu/runtime/while_thunk.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;
using xla::cpu::Thunk;
using xla::cpu::ThunkExecutor;
using xla::cpu::ThunkSequence;

constexpr absl::string_view kAttribute = "hloenv_execution";
constexpr absl::string_view kInOrder = "in_order";

bool IsMarked(const HloInstruction& instruction) {
  if (!instruction.has_frontend_attributes()) return false;
  const auto& attributes = instruction.frontend_attributes().map();
  const auto it = attributes.find(std::string(kAttribute));
  return it != attributes.end() && it->second == kInOrder;
}

bool HasLargeArray(const xla::Shape& shape, int64_t element_bytes) {
  const auto threshold = static_cast<int64_t>(
      ThunkExecutor::Options().execute_sequential_buffer_threshold);
  bool is_large = false;
  xla::ShapeUtil::ForEachSubshape(shape, [&](const xla::Shape& part,
                                             const xla::ShapeIndex&) {
    if (!part.IsArray()) return;
    const int64_t bytes =
        element_bytes == 0 ? xla::ShapeUtil::ByteSizeOf(part)
                           : xla::ShapeUtil::ElementsIn(part) * element_bytes;
    is_large |= bytes > threshold;
  });
  return is_large;
}

// How many copies the backend may need for the tuple that `computation`
// returns: a loop's body writes each element to where it was read, so that one
// for what is computed, and two for what moves to another index.
size_t NumCopies(const HloComputation& computation) {
  const HloInstruction* root = computation.root_instruction();
  if (root->opcode() != HloOpcode::kTuple) return 0;
  size_t num_copies = 0;
  for (int64_t i = 0; i < root->operand_count(); ++i) {
    const HloInstruction* element = root->operand(i);
    if (element->opcode() != HloOpcode::kGetTupleElement ||
        element->operand(0)->opcode() != HloOpcode::kParameter) {
      ++num_copies;
    } else if (element->tuple_index() != i) {
      num_copies += 2;
    }
  }
  return num_copies;
}

// The steps of computations that are marked, of the module that this thread
// compiles.
thread_local const absl::flat_hash_set<std::string>* in_order = nullptr;

// XLA names a step after its instruction, and sometimes adds " (unit)".
bool IsInOrder(const ThunkSequence& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const auto& step) {
    const absl::string_view name = step->info().op_name;
    return in_order->contains(name.substr(0, name.find(' ')));
  });
}

absl::StatusOr<ThunkExecutor> (*create)(ThunkSequence,
                                        const ThunkExecutor::Options&);
absl::StatusOr<ThunkExecutor> Create(ThunkSequence steps,
                                     const ThunkExecutor::Options& options) {
  if (in_order == nullptr || !IsInOrder(steps)) {
    return create(std::move(steps), options);
  }
  ThunkExecutor::Options sequential = options;
  sequential.execute_sequential_num_thunks_threshold = steps.size();
  return create(std::move(steps), sequential);
}

}  // namespace

bool IsFree(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kAddDependency:
    case HloOpcode::kAfterAll:
    case HloOpcode::kBitcast:
    case HloOpcode::kConstant:
    case HloOpcode::kDomain:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kOptimizationBarrier:
    case HloOpcode::kParameter:
    case HloOpcode::kTuple:
      return true;
    default:
      return false;
  }
}

bool RunsAsGraph(const HloComputation& computation, int64_t element_bytes) {
  size_t num_steps = NumCopies(computation);
  bool has_large_array = false;
  for (const HloInstruction* instruction : computation.instructions()) {
    if (IsFree(*instruction)) continue;
    ++num_steps;
    has_large_array |= HasLargeArray(instruction->shape(), element_bytes);
    for (const HloInstruction* operand : instruction->operands()) {
      has_large_array |= HasLargeArray(operand->shape(), element_bytes);
    }
  }
  return has_large_array &&
         num_steps >
             ThunkExecutor::Options().execute_sequential_num_thunks_threshold;
}

int64_t NumGraphs(const ThunkExecutor& executor) {
  int64_t num_graphs = executor.is_sequential() ? 0 : 1;
  for (const auto& step : executor.thunk_sequence()) {
    switch (step->kind()) {
      case Thunk::Kind::kWhile: {
        const auto& loop = static_cast<const xla::cpu::WhileThunk&>(*step);
        num_graphs +=
            NumGraphs(loop.cond_executor()) + NumGraphs(loop.body_executor());
        break;
      }
      case Thunk::Kind::kConditional:
        for (const ThunkExecutor& branch :
             static_cast<const xla::cpu::ConditionalThunk&>(*step)
                 .branch_executors()) {
          num_graphs += NumGraphs(branch);
        }
        break;
      case Thunk::Kind::kCall:
        num_graphs += NumGraphs(
            static_cast<const xla::cpu::CallThunk&>(*step).called_executor());
        break;
      default:
        break;
    }
  }
  return num_graphs;
}

void MarkInOrder(HloInstruction* instruction) {
  instruction->set_frontend_attribute(kAttribute, kInOrder);
}

bool IsInOrder(const HloComputation& computation) {
  return absl::c_any_of(
      computation.instructions(), [](const HloInstruction* instruction) {
        return IsMarked(*instruction) ||
               (instruction->opcode() == HloOpcode::kFusion &&
                IsInOrder(*instruction->fused_instructions_computation()));
      });
}

bool HasComputationsInOrder(const HloModule& module) {
  return absl::c_any_of(module.computations(), [](const HloComputation* each) {
    return IsInOrder(*each);
  });
}

ExecutionScope::~ExecutionScope() { in_order = nullptr; }

absl::Status ExecutionScope::Enter(const HloModule& module) {
  for (const HloComputation* computation : module.computations()) {
    if (!IsInOrder(*computation)) continue;
    for (const HloInstruction* instruction : computation->instructions()) {
      in_order_.emplace(instruction->name());
    }
  }
  if (in_order_.empty()) return absl::OkStatus();
  static auto* group = new HookGroup(
      {{"_ZN3xla3cpu13ThunkExecutor6CreateENS0_13ThunkSequenceERKNS1_"
        "7OptionsE",
        reinterpret_cast<void*>(Create), reinterpret_cast<void**>(&create)}});
  HLOENV_RETURN_IF_ERROR(group->Install());
  in_order = &in_order_;
  return absl::OkStatus();
}

}  // namespace hloenv
