// SPDX-License-Identifier: Apache-2.0
#include "hlo/known_values.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "hlo/value_flow.h"
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

// Instructions that pass on values of others.
bool IsForwarding(const HloInstruction& value) {
  return value.opcode() == HloOpcode::kParameter ||
         value.opcode() == HloOpcode::kGetTupleElement;
}

// Whether it gives different results in each run, of equal operands too.
bool DependsOnRun(const HloInstruction& value) {
  return !value.shape().IsArray() || !value.shape().is_static() ||
         value.HasSideEffect() || value.opcode() == HloOpcode::kRng ||
         value.opcode() == HloOpcode::kCustomCall ||
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
      return true;
    default:
      return value.IsElementwise();
  }
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

// An elementwise operation on the scalars that its operands consist of.
std::shared_ptr<const xla::Literal> OfScalars(
    const HloInstruction& value,
    absl::Span<const xla::Literal* const> scalars) {
  std::vector<std::unique_ptr<HloInstruction>> constants;
  std::vector<HloInstruction*> operands;
  for (const xla::Literal* scalar : scalars) {
    constants.push_back(HloInstruction::CreateConstant(scalar->Clone()));
    operands.push_back(constants.back().get());
  }
  const xla::Shape shape =
      xla::ShapeUtil::MakeShape(value.shape().element_type(), {});
  const std::unique_ptr<HloInstruction> scalar =
      value.CloneWithNewOperands(shape, operands);
  xla::HloEvaluator evaluator;
  return Shared(evaluator.Evaluate(
      scalar.get(), {}, /*recursively_evaluate_nonconstant_operands=*/true));
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
  std::vector<const HloInstruction*> left = {&value};
  while (!left.empty()) {
    const HloInstruction& next = *left.back();
    if (done_.contains(&next)) {
      left.pop_back();
      continue;
    }
    // Nothing is known of a value that it depends on itself, as in a loop.
    if (values_.try_emplace(&next).second && !DependsOnRun(next)) {
      const size_t count = left.size();
      for (const HloInstruction* operand : next.operands()) {
        if (!values_.contains(operand)) left.push_back(operand);
      }
      if (left.size() > count) continue;
    } else if (IsForwarding(next) && next.shape().IsArray()) {
      bool is_waiting = false;
      for (const HloInstruction* source : SourcesOf(next)) {
        if (values_.contains(source)) continue;
        left.push_back(source);
        is_waiting = true;
      }
      if (is_waiting) continue;
    }
    KnownValue known = Computed(next);
    values_[&next] = std::move(known);
    done_.insert(&next);
    left.pop_back();
  }
  return values_[&value];
}

// Those of its operands, or of what it forwards, must be in `values_`.
KnownValue KnownValues::Computed(const HloInstruction& value) {
  if (IsForwarding(value) && value.shape().IsArray()) {
    const std::vector<const HloInstruction*> sources = SourcesOf(value);
    if (sources.size() == 1 && sources.front() != &value) {
      return values_[sources.front()];
    }
    const bool is_fixed =
        !sources.empty() &&
        absl::c_all_of(sources, [&](const HloInstruction* source) {
          return source != &value && values_[source].is_fixed;
        });
    return {is_fixed, nullptr};
  }
  if (DependsOnRun(value)) return {};
  for (const HloInstruction* operand : value.operands()) {
    if (!values_[operand].is_fixed) return {};
  }
  return {true, Evaluated(value)};
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
    literals.push_back(values_[operand].literal.get());
    if (literals.back() == nullptr) return nullptr;
    is_uniform &= literals.back()->shape().dimensions().empty();
  }
  if (is_uniform && !xla::ShapeUtil::IsZeroElementArray(value.shape())) {
    if (KeepsUniform(value)) return values_[value.operand(0)].literal;
    if (value.IsElementwise() && value.called_computations().empty()) {
      return --work_left_ < 0 ? nullptr : OfScalars(value, literals);
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
    std::optional<xla::Literal> whole = values_[operand].Whole(*operand);
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
  if (DependsOnRun(value) || !IsEvaluable(value)) return std::nullopt;
  int64_t work =
      std::max<int64_t>(xla::ShapeUtil::ElementsIn(value.shape()), 1);
  for (const HloInstruction* operand : value.operands()) {
    work = std::max(work, xla::ShapeUtil::ElementsIn(operand->shape()));
  }
  const int64_t calls = value.opcode() == HloOpcode::kCall ? 1 : work;
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
