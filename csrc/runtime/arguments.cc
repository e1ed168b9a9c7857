// SPDX-License-Identifier: Apache-2.0
#include "runtime/arguments.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::ShapeIndex;

// One array inside the value of an instruction.
using Value = std::pair<const HloInstruction*, ShapeIndex>;

// What an array has the elements of: one number, such as a constant, or an
// iota.
const HloInstruction* Unspread(const HloInstruction* instruction) {
  while (instruction->opcode() == HloOpcode::kReshape ||
         instruction->opcode() == HloOpcode::kBroadcast ||
         instruction->opcode() == HloOpcode::kConvert) {
    instruction = instruction->operand(0);
  }
  return instruction;
}

// Whether all elements are one positive number that the module has.
bool IsPositiveNumber(const HloInstruction* instruction) {
  const HloInstruction* number = Unspread(instruction);
  if (number->opcode() != HloOpcode::kConstant ||
      !xla::ShapeUtil::IsEffectiveScalar(number->shape())) {
    return false;
  }
  const xla::LiteralBase& literal = number->literal();
  const std::vector<int64_t> index(number->shape().dimensions().size());
  return literal.GetAsDouble(index).value_or(0) > 0;
}

// What is found out about the leaves.
enum class Wanted { kIndexBounds, kPositive };

class BoundFinder {
 public:
  BoundFinder(const xla::HloModule& module, Wanted wanted)
      : module_(module), wanted_(wanted) {
    for (const HloComputation* computation : module.computations()) {
      for (const HloInstruction* caller : computation->instructions()) {
        for (const HloComputation* callee : caller->called_computations()) {
          callers_[callee].push_back(caller);
        }
      }
    }
    for (const HloInstruction* parameter :
         module.entry_computation()->parameter_instructions()) {
      xla::ShapeUtil::ForEachSubshape(
          parameter->shape(),
          [&](const xla::Shape& leaf, const ShapeIndex& index) {
            if (leaf.IsTuple()) return;
            leaves_[{parameter, index}] = leaves_.size();
          });
    }
    bounds_.resize(leaves_.size());
  }

  std::vector<std::optional<int64_t>> Run() {
    for (const HloComputation* computation : module_.computations()) {
      for (const HloInstruction* instruction : computation->instructions()) {
        if (wanted_ == Wanted::kIndexBounds) {
          VisitIndexing(*instruction);
        } else {
          VisitRoot(*instruction);
        }
      }
    }
    // With the smallest first, none is passed on to what has one already.
    std::stable_sort(
        seeds_.begin(), seeds_.end(),
        [](const Seed& a, const Seed& b) { return a.bound < b.bound; });
    for (const Seed& seed : seeds_) PassOn(seed);
    return std::move(bounds_);
  }

 private:
  // The bound stands for being found only.
  void VisitRoot(const HloInstruction& instruction) {
    if (instruction.opcode() == HloOpcode::kLog ||
        instruction.opcode() == HloOpcode::kRsqrt ||
        instruction.opcode() == HloOpcode::kSqrt) {
      Bound({instruction.operand(0), {}}, 1);
    }
  }

  void VisitIndexing(const HloInstruction& instruction) {
    switch (instruction.opcode()) {
      case HloOpcode::kGather: {
        const auto& numbers = instruction.gather_dimension_numbers();
        VisitIndices(
            instruction, /*indices=*/1, numbers.start_index_map(),
            [&](int64_t dimension) {
              return instruction.operand(0)->shape().dimensions(dimension) -
                     instruction.gather_slice_sizes()[dimension];
            });
        break;
      }
      case HloOpcode::kScatter: {
        const auto* scatter =
            xla::Cast<xla::HloScatterInstruction>(&instruction);
        const auto& numbers = instruction.scatter_dimension_numbers();
        VisitIndices(
            instruction, /*indices=*/scatter->scatter_operand_count(),
            numbers.scatter_dims_to_operand_dims(), [&](int64_t dimension) {
              return instruction.operand(0)->shape().dimensions(dimension) - 1;
            });
        break;
      }
      case HloOpcode::kDynamicSlice:
        VisitStarts(instruction, /*first=*/1, [&](int64_t dimension) {
          return instruction.operand(0)->shape().dimensions(dimension) -
                 instruction.dynamic_slice_sizes()[dimension];
        });
        break;
      case HloOpcode::kDynamicUpdateSlice:
        VisitStarts(instruction, /*first=*/2, [&](int64_t dimension) {
          return instruction.operand(0)->shape().dimensions(dimension) -
                 instruction.operand(1)->shape().dimensions(dimension);
        });
        break;
      case HloOpcode::kCompare:
        for (int64_t i = 0; i < 2; ++i) {
          if (std::optional<int64_t> size = IotaSize(instruction.operand(i))) {
            Bound({instruction.operand(1 - i), {}}, *size);
          }
        }
        break;
      default:
        break;
    }
  }

  // The starts of a slice: one scalar for each dimension, or one array of them.
  template <typename Largest>
  void VisitStarts(const HloInstruction& instruction, int64_t first,
                   Largest largest) {
    if (instruction.operand_count() > first &&
        !instruction.operand(first)->shape().dimensions().empty()) {
      std::vector<int64_t> dimensions(
          instruction.operand(0)->shape().dimensions().size());
      std::iota(dimensions.begin(), dimensions.end(), 0);
      VisitIndices(instruction, first, dimensions, largest);
      return;
    }
    for (int64_t i = first; i < instruction.operand_count(); ++i) {
      Bound({instruction.operand(i), {}}, largest(i - first) + 1);
    }
  }

  // One bound for all index components, because one array holds them: the
  // smallest bound of any component.
  template <typename Dimensions, typename Largest>
  void VisitIndices(const HloInstruction& instruction, int64_t indices,
                    const Dimensions& dimensions, Largest largest) {
    int64_t bound = std::numeric_limits<int64_t>::max();
    for (int64_t dimension : dimensions) {
      bound = std::min(bound, largest(dimension) + 1);
    }
    if (dimensions.size() > 0) Bound({instruction.operand(indices), {}}, bound);
  }

  // The size of the iota dimension, if `instruction` is a reshaped, broadcast
  // or converted iota.
  static std::optional<int64_t> IotaSize(const HloInstruction* instruction) {
    instruction = Unspread(instruction);
    if (instruction->opcode() != HloOpcode::kIota) return std::nullopt;
    const auto* iota = xla::Cast<xla::HloIotaInstruction>(instruction);
    return iota->shape().dimensions(iota->iota_dimension());
  }

  // A value, and what its elements must be below.
  struct Seed {
    Value value;
    int64_t bound;
  };

  void Bound(Value value, int64_t bound) {
    seeds_.push_back({std::move(value), std::max<int64_t>(bound, 1)});
  }

  // Applies a bound to the leaves that its value comes from through
  // instructions that keep values the same or nearly so.
  void PassOn(const Seed& seed) {
    const int64_t bound = seed.bound;
    std::vector<Value> agenda;
    auto push = [&](const HloInstruction* instruction, ShapeIndex index) {
      Value next(instruction, std::move(index));
      if (seen_.insert(next).second) agenda.push_back(std::move(next));
    };
    push(seed.value.first, seed.value.second);
    while (!agenda.empty()) {
      auto [instruction, index] = std::move(agenda.back());
      agenda.pop_back();
      switch (instruction->opcode()) {
        case HloOpcode::kParameter:
          if (instruction->parent() == module_.entry_computation()) {
            auto leaf = leaves_.find({instruction, index});
            if (leaf == leaves_.end()) break;
            std::optional<int64_t>& known = bounds_[leaf->second];
            known = std::min(known.value_or(bound), bound);
          } else {
            PushArguments(*instruction, index, push);
          }
          break;
        case HloOpcode::kGetTupleElement: {
          ShapeIndex inner = index;
          inner.push_front(instruction->tuple_index());
          push(instruction->operand(0), std::move(inner));
          break;
        }
        case HloOpcode::kTuple: {
          if (index.empty()) break;
          ShapeIndex inner(index.begin() + 1, index.end());
          push(instruction->operand(index.front()), std::move(inner));
          break;
        }
        case HloOpcode::kWhile:
          push(instruction->operand(0), index);
          break;
        case HloOpcode::kCall:
        case HloOpcode::kFusion:
          push(instruction->called_computations().front()->root_instruction(),
               index);
          break;
        case HloOpcode::kSelect:
          push(instruction->operand(1), index);
          push(instruction->operand(2), index);
          break;
        case HloOpcode::kClamp:
          push(instruction->operand(1), index);
          break;
        case HloOpcode::kDynamicSlice:
        case HloOpcode::kGather:
          push(instruction->operand(0), index);
          break;
        case HloOpcode::kAdd:
        case HloOpcode::kBitcast:
        case HloOpcode::kBroadcast:
        case HloOpcode::kConcatenate:
        case HloOpcode::kConvert:
        case HloOpcode::kCopy:
        case HloOpcode::kMaximum:
        case HloOpcode::kMinimum:
        case HloOpcode::kOptimizationBarrier:
        case HloOpcode::kPad:
        case HloOpcode::kReshape:
        case HloOpcode::kReverse:
        case HloOpcode::kSlice:
        case HloOpcode::kTranspose:
          for (const HloInstruction* operand : instruction->operands()) {
            push(operand, index);
          }
          break;
        case HloOpcode::kMultiply:
          if (wanted_ != Wanted::kPositive) break;
          for (int64_t i = 0; i < 2; ++i) {
            if (IsPositiveNumber(instruction->operand(1 - i))) {
              push(instruction->operand(i), index);
            }
          }
          break;
        case HloOpcode::kDivide:
          if (wanted_ == Wanted::kPositive) {
            push(instruction->operand(0), index);
          }
          break;
        default:
          break;
      }
    }
  }

  template <typename Push>
  void PushArguments(const HloInstruction& parameter, const ShapeIndex& index,
                     Push& push) {
    auto callers = callers_.find(parameter.parent());
    if (callers == callers_.end()) return;
    for (const HloInstruction* caller : callers->second) {
      switch (caller->opcode()) {
        case HloOpcode::kCall:
        case HloOpcode::kFusion:
          push(caller->operand(parameter.parameter_number()), index);
          break;
        case HloOpcode::kWhile:
          push(caller->operand(0), index);
          break;
        case HloOpcode::kConditional:
          for (int64_t i = 0; i < caller->branch_count(); ++i) {
            if (caller->branch_computation(i) == parameter.parent()) {
              push(caller->operand(i + 1), index);
            }
          }
          break;
        default:
          break;
      }
    }
  }

  const xla::HloModule& module_;
  const Wanted wanted_;
  absl::flat_hash_map<const HloComputation*, std::vector<const HloInstruction*>>
      callers_;
  absl::flat_hash_map<Value, size_t> leaves_;
  std::vector<std::optional<int64_t>> bounds_;
  std::vector<Seed> seeds_;
  absl::flat_hash_set<Value> seen_;
};

}  // namespace

std::vector<std::optional<int64_t>> IndexBounds(const xla::HloModule& module) {
  return BoundFinder(module, Wanted::kIndexBounds).Run();
}

std::vector<bool> PositiveLeaves(const xla::HloModule& module) {
  std::vector<bool> are_positive;
  for (const auto& bound : BoundFinder(module, Wanted::kPositive).Run()) {
    are_positive.push_back(bound.has_value());
  }
  return are_positive;
}

}  // namespace hloenv
