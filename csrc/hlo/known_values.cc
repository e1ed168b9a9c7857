// SPDX-License-Identifier: Apache-2.0
#include "hlo/known_values.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "hlo/evaluation.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// Nested calls up to which their work is known.
constexpr int kMaxDepth = 32;
// What an operation or a call costs in addition to its elements, in elements.
constexpr int64_t kStepWork = 64;

// Instructions that pass on values of others.
bool IsForwarding(const HloInstruction& value) {
  return value.opcode() == HloOpcode::kParameter ||
         value.opcode() == HloOpcode::kGetTupleElement;
}

// Whether it gives different results in each run, of equal operands too.
bool DependsOnRun(const HloInstruction& value) {
  return value.HasSideEffect() || value.opcode() == HloOpcode::kRng ||
         value.opcode() == HloOpcode::kCustomCall ||
         (value.shape().IsArray() && !value.shape().is_static()) ||
         (value.operand_count() == 0 &&
          value.opcode() != HloOpcode::kConstant &&
          value.opcode() != HloOpcode::kIota);
}

// Whether XLA's evaluator computes it in a time that is known.
bool IsEvaluable(const HloInstruction& value) {
  switch (value.opcode()) {
    case HloOpcode::kIota:
    case HloOpcode::kBroadcast:
    case HloOpcode::kReshape:
    case HloOpcode::kTranspose:
    case HloOpcode::kSlice:
    case HloOpcode::kConcatenate:
    case HloOpcode::kPad:
    case HloOpcode::kReverse:
    case HloOpcode::kReduce:
    case HloOpcode::kCall:
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kDynamicUpdateSlice:
    case HloOpcode::kGather:
    case HloOpcode::kScatter:
      return true;
    default:
      return value.IsElementwise();
  }
}

// A reduction that the evaluator computes without a call for each element.
bool IsSum(const HloInstruction& value) {
  if (value.opcode() != HloOpcode::kReduce || value.operand_count() != 2 ||
      !xla::ShapeUtil::ElementIsFloating(value.shape())) {
    return false;
  }
  const HloInstruction& root = *value.to_apply()->root_instruction();
  return root.opcode() == HloOpcode::kAdd &&
         root.operand(0)->opcode() == HloOpcode::kParameter &&
         root.operand(1)->opcode() == HloOpcode::kParameter &&
         root.operand(0) != root.operand(1);
}

// Whether equal elements of its operand give an array of these.
bool KeepsUniform(const HloInstruction& value) {
  switch (value.opcode()) {
    case HloOpcode::kBroadcast:
    case HloOpcode::kReshape:
    case HloOpcode::kTranspose:
    case HloOpcode::kSlice:
    case HloOpcode::kReverse:
      return true;
    default:
      return false;
  }
}

std::shared_ptr<const xla::Literal> Shared(
    absl::StatusOr<xla::Literal> literal) {
  if (!literal.ok()) return nullptr;
  return std::make_shared<const xla::Literal>(*std::move(literal));
}

}  // namespace

std::optional<xla::Literal> KnownValue::Whole(
    const HloInstruction& value) const {
  if (literal == nullptr) return std::nullopt;
  if (xla::ShapeUtil::SameDimensions(literal->shape(), value.shape())) {
    return literal->Clone();
  }
  absl::StatusOr<xla::Literal> whole = literal->Broadcast(value.shape(), {});
  if (!whole.ok()) return std::nullopt;
  return *std::move(whole);
}

KnownValue KnownValues::Of(const HloInstruction& value) {
  if (!has_varying_) FindVarying(*value.GetModule());
  std::vector<const HloInstruction*> left = {&value};
  while (!left.empty()) {
    const HloInstruction& next = *left.back();
    if (done_.contains(&next)) {
      left.pop_back();
      continue;
    }
    const bool is_new = values_.try_emplace(&next).second;
    if (is_new && next.shape().IsArray() && !varying_.contains(&next)) {
      const size_t count = left.size();
      const auto add = [&](const HloInstruction* needed) {
        // Of a value that it depends on itself, as in a loop, no literal is
        // known.
        if (!values_.contains(needed)) left.push_back(needed);
      };
      if (IsForwarding(next)) {
        for (const HloInstruction* source : sources_.Of(next)) add(source);
      } else {
        for (const HloInstruction* operand : next.operands()) add(operand);
      }
      if (left.size() > count) continue;
    }
    values_[&next] = Computed(next);
    done_.insert(&next);
    left.pop_back();
  }
  return values_[&value];
}

// From what differs between runs, to all that is computed from it.
void KnownValues::FindVarying(const xla::HloModule& module) {
  has_varying_ = true;
  absl::flat_hash_map<const HloInstruction*, std::vector<const HloInstruction*>>
      passed_on;
  std::vector<const HloInstruction*> left;
  const auto add = [&](const HloInstruction* varying) {
    if (varying_.insert(varying).second) left.push_back(varying);
  };
  for (const xla::HloComputation* computation : module.computations()) {
    for (const HloInstruction* each : computation->instructions()) {
      if (!OnlyForwards(*each)) {
        if (DependsOnRun(*each)) add(each);
      } else if (!each->shape().IsArray()) {
        // Of the entry: others are no sources.
        if (each->opcode() == HloOpcode::kParameter) add(each);
      } else {
        for (const HloInstruction* source : sources_.Of(*each)) {
          if (source == each) {
            add(each);
          } else {
            passed_on[source].push_back(each);
          }
        }
      }
    }
  }
  while (!left.empty()) {
    const HloInstruction* varying = left.back();
    left.pop_back();
    for (const HloInstruction* user : varying->users()) {
      if (!OnlyForwards(*user)) add(user);
    }
    const auto found = passed_on.find(varying);
    if (found == passed_on.end()) continue;
    for (const HloInstruction* target : found->second) add(target);
  }
}

// `values_` must have its operands, or what it forwards.
KnownValue KnownValues::Computed(const HloInstruction& value) {
  if (varying_.contains(&value)) return {};
  if (!value.shape().IsArray()) return {true, nullptr};
  if (!IsForwarding(value)) return {true, Evaluated(value)};
  const std::vector<const HloInstruction*>& sources = sources_.Of(value);
  if (sources.size() != 1) return {true, nullptr};
  return {true, values_.at(sources.front()).literal};
}

std::shared_ptr<const xla::Literal> KnownValues::Evaluated(
    const HloInstruction& value) {
  if (value.opcode() == HloOpcode::kConstant) {
    return xla::ShapeUtil::ElementsIn(value.shape()) <= max_elements_
               ? Shared(value.literal().Clone())
               : nullptr;
  }
  if (!IsEvaluable(value)) return nullptr;
  std::vector<const xla::Literal*> literals;
  bool is_uniform = value.operand_count() > 0;
  for (const HloInstruction* operand : value.operands()) {
    literals.push_back(values_.at(operand).literal.get());
    if (literals.back() == nullptr) return nullptr;
    is_uniform &= literals.back()->shape().dimensions().empty();
  }
  if (is_uniform && !xla::ShapeUtil::IsZeroElementArray(value.shape())) {
    if (KeepsUniform(value)) return values_.at(value.operand(0)).literal;
    if (value.IsElementwise() && value.called_computations().empty()) {
      work_left_ -= kStepWork;
      if (work_left_ < 0) return nullptr;
      const xla::Shape scalar =
          xla::ShapeUtil::MakeShape(value.shape().element_type(), {});
      return Shared(EvaluatedOn(value, scalar, literals));
    }
  }
  const std::optional<int64_t> work = WorkOf(value, 0);
  if (!work.has_value() || *work > work_left_ ||
      xla::ShapeUtil::ElementsIn(value.shape()) > max_elements_) {
    return nullptr;
  }
  std::vector<xla::Literal> wholes;
  wholes.reserve(literals.size());
  absl::flat_hash_map<const HloInstruction*, const xla::LiteralBase*> given;
  for (const HloInstruction* operand : value.operands()) {
    if (given.contains(operand)) continue;
    if (xla::ShapeUtil::ElementsIn(operand->shape()) > max_elements_) {
      return nullptr;
    }
    std::optional<xla::Literal> whole = values_.at(operand).Whole(*operand);
    if (!whole.has_value()) return nullptr;
    wholes.push_back(*std::move(whole));
    given[operand] = &wholes.back();
  }
  work_left_ -= *work;
  xla::HloEvaluator evaluator;
  return Shared(evaluator.Evaluate(
      &value, {}, /*recursively_evaluate_nonconstant_operands=*/true, given));
}

// How many elements are computed for an instruction; nothing if that is not
// known, or depends on a run.
std::optional<int64_t> KnownValues::WorkOf(const HloInstruction& value,
                                           int depth) {
  if (!value.shape().IsArray() || DependsOnRun(value) || !IsEvaluable(value)) {
    return std::nullopt;
  }
  int64_t elements =
      std::max<int64_t>(xla::ShapeUtil::ElementsIn(value.shape()), 1);
  for (const HloInstruction* operand : value.operands()) {
    if (!operand->shape().IsArray()) return std::nullopt;
    elements = std::max(elements, xla::ShapeUtil::ElementsIn(operand->shape()));
  }
  const int64_t calls = value.opcode() == HloOpcode::kCall ? 1 : elements;
  int64_t work = elements + kStepWork;
  if (IsSum(value)) return work;
  for (const xla::HloComputation* called : value.called_computations()) {
    const std::optional<int64_t> inner = WorkOf(*called, depth + 1);
    if (!inner.has_value() || *inner > work_left_ / calls) return std::nullopt;
    work += calls * *inner;
  }
  return work;
}

std::optional<int64_t> KnownValues::WorkOf(const xla::HloComputation& called,
                                           int depth) {
  const auto found = work_.find(&called);
  if (found != work_.end()) return found->second;
  std::optional<int64_t> sum =
      depth <= kMaxDepth ? std::optional<int64_t>(0) : std::nullopt;
  for (const HloInstruction* each : called.instructions()) {
    if (!sum.has_value()) break;
    if (each->opcode() == HloOpcode::kParameter ||
        each->opcode() == HloOpcode::kConstant) {
      continue;
    }
    const std::optional<int64_t> more = WorkOf(*each, depth);
    sum = more.has_value() && *more <= work_left_ - *sum
              ? std::optional<int64_t>(*sum + *more)
              : std::nullopt;
  }
  work_[&called] = sum;
  return sum;
}

}  // namespace hloenv
