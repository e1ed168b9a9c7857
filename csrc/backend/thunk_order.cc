// SPDX-License-Identifier: Apache-2.0
#include "backend/thunk_order.h"

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

constexpr absl::string_view kOrderAttribute = "hloenv_execution";
constexpr absl::string_view kInOrder = "in_order";

bool RunsInOrder(const HloInstruction& instruction) {
  return instruction.get_frontend_attribute(kOrderAttribute) == kInOrder;
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

// Whether `value` lives where the computation must not write.
bool IsGiven(const HloInstruction& value) {
  return value.opcode() == HloOpcode::kParameter ||
         value.opcode() == HloOpcode::kConstant;
}

// Estimates the number of copies that copy insertion adds. The body of a loop
// writes each tuple element in place: one copy for a computed element, two for
// an element that moves to another index. Other computations return copies of
// parameters, constants and repeated values; initial loop states need the same
// copies.
size_t NumCopies(const HloComputation& computation) {
  size_t num_copies = 0;
  const HloInstruction* root = computation.root_instruction();
  const bool is_body = computation.num_parameters() == 1 &&
                       computation.parameter_instruction(0)->shape().IsTuple();
  for (const HloInstruction* instruction : computation.instructions()) {
    const bool is_root = instruction == root;
    const bool is_start =
        absl::c_any_of(instruction->users(), [](const HloInstruction* user) {
          return user->opcode() == HloOpcode::kWhile;
        });
    if (instruction->opcode() != HloOpcode::kTuple || !(is_root || is_start)) {
      continue;
    }
    absl::flat_hash_set<const HloInstruction*> seen;
    for (int64_t i = 0; i < instruction->operand_count(); ++i) {
      const HloInstruction* element = instruction->operand(i);
      if (element->opcode() == HloOpcode::kCopy) continue;
      const bool is_read = element->opcode() == HloOpcode::kGetTupleElement &&
                           IsGiven(*element->operand(0));
      if (!(is_root && is_body)) {
        const bool is_repeated = !seen.insert(element).second;
        num_copies += IsGiven(*element) || is_read || is_repeated ? 1 : 0;
      } else if (!is_read) {
        num_copies += 1;
      } else if (element->tuple_index() != i) {
        num_copies += 2;
      }
    }
  }
  return num_copies;
}

// Whether each thunk depends on the previous one.
bool IsChain(const HloComputation& computation) {
  const HloInstruction* before = nullptr;
  for (const HloInstruction* step : computation.MakeInstructionPostOrder()) {
    if (IsFree(*step)) continue;
    const auto reads = [&](const HloInstruction* value) {
      while (value != before && IsFree(*value) && value->operand_count() == 1) {
        value = value->operand(0);
      }
      return value == before;
    };
    if (before != nullptr && !absl::c_any_of(step->operands(), reads)) {
      return false;
    }
    before = step;
  }
  return true;
}

// The thunk names of marked computations in the module that this thread
// compiles.
thread_local const absl::flat_hash_set<std::string>* in_order = nullptr;

// XLA names a thunk after its instruction, and sometimes appends " (unit)".
bool IsSequential(const ThunkSequence& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const auto& step) {
    const absl::string_view name = step->info().op_name;
    return in_order->contains(name.substr(0, name.find(' ')));
  });
}

absl::StatusOr<ThunkExecutor> (*create)(ThunkSequence,
                                        const ThunkExecutor::Options&);
absl::StatusOr<ThunkExecutor> Create(ThunkSequence steps,
                                     const ThunkExecutor::Options& options) {
  if (in_order == nullptr || !IsSequential(steps)) {
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
             ThunkExecutor::Options().execute_sequential_num_thunks_threshold &&
         !IsChain(computation);
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

void MarkSequential(HloInstruction* instruction) {
  instruction->set_frontend_attribute(kOrderAttribute, kInOrder);
}

bool IsSequential(const HloComputation& computation) {
  return absl::c_any_of(
      computation.instructions(), [](const HloInstruction* instruction) {
        return RunsInOrder(*instruction) ||
               (instruction->opcode() == HloOpcode::kFusion &&
                IsSequential(*instruction->fused_instructions_computation()));
      });
}

void ClearOrder(HloModule* module) {
  for (HloComputation* computation : module->computations()) {
    for (HloInstruction* instruction : computation->instructions()) {
      if (RunsInOrder(*instruction)) {
        instruction->erase_frontend_attribute(kOrderAttribute);
      }
    }
  }
}

absl::flat_hash_set<std::string> SequentialComputations(
    const HloModule& module) {
  absl::flat_hash_set<std::string> names;
  for (const HloComputation* computation : module.computations()) {
    if (IsSequential(*computation)) names.emplace(computation->name());
  }
  return names;
}

ThunkOrderScope::ThunkOrderScope() : outer_(in_order) { in_order = nullptr; }

ThunkOrderScope::~ThunkOrderScope() { in_order = outer_; }

absl::Status ThunkOrderScope::Enter(const HloModule& module) {
  for (const HloComputation* computation : module.computations()) {
    if (!IsSequential(*computation)) continue;
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
