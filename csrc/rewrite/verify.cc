// SPDX-License-Identifier: Apache-2.0
#include "rewrite/verify.h"

#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>

#include "rewrite/alternative.h"
#include "rewrite/perturb.h"
#include "support/status.h"
#include "xla/primitive_util.h"

namespace hloenv {
namespace {

template <typename T>
bool IsNan(const T& value) {
  if constexpr (xla::is_complex_v<T>) {
    return std::isnan(value.real()) || std::isnan(value.imag());
  } else if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return std::isnan(static_cast<double>(value));
  }
}

template <typename T>
double Magnitude(const T& value) {
  if constexpr (xla::is_complex_v<T>) {
    return static_cast<double>(std::abs(value));
  } else {
    return std::abs(static_cast<double>(value));
  }
}

template <typename T>
double Distance(const T& a, const T& b) {
  if (a == b) return 0;
  if (IsNan(a) && IsNan(b)) return 0;
  double distance;
  if constexpr (xla::is_complex_v<T>) {
    distance = static_cast<double>(std::abs(a - b));
  } else {
    distance = std::abs(static_cast<double>(a) - static_cast<double>(b));
    // Different integers above 2^53 may be equal as doubles.
    if constexpr (std::is_integral_v<T>) distance = std::max(distance, 1.0);
  }
  return std::isnan(distance) ? std::numeric_limits<double>::infinity()
                              : distance;
}

void CompareArrays(const xla::LiteralBase& original,
                   const xla::LiteralBase& choice, const xla::ShapeIndex& at,
                   const xla::Shape& shape, ChoiceError* error) {
  if (!xla::primitive_util::IsArrayType(shape.element_type())) return;
  xla::primitive_util::ArrayTypeSwitch(
      [&](auto type) {
        using Native = xla::primitive_util::NativeTypeOf<type()>;
        const auto left = original.data<Native>(at);
        const auto right = choice.data<Native>(at);
        // Integers do not round: their distance is relative to 1.
        constexpr bool kRounds = !std::is_integral_v<Native>;
        double largest = kRounds ? 0 : 1;
        double worst = 0;
        for (size_t i = 0; i < left.size(); ++i) {
          if (IsNan(left[i]) && !IsNan(right[i])) {
            ++error->num_nans_lost;
            continue;
          }
          if (!IsNan(left[i])) ++error->num_compared;
          const double magnitude = Magnitude(left[i]);
          if (kRounds && std::isfinite(magnitude)) {
            largest = std::max(largest, magnitude);
          }
          worst = std::max(worst, Distance(left[i], right[i]));
        }
        error->absolute = std::max(error->absolute, worst);
        if (worst > 0) {
          error->relative = std::max(
              error->relative,
              worst / std::max(largest, std::numeric_limits<double>::min()));
        }
      },
      shape.element_type());
}

// `is_read`: the elements of a tuple to compare; empty for all.
void Compare(const xla::LiteralBase& original, const xla::LiteralBase& choice,
             absl::Span<const uint8_t> is_read, ChoiceError* error) {
  xla::ShapeUtil::ForEachSubshape(
      original.shape(), [&](const xla::Shape& leaf, const xla::ShapeIndex& at) {
        if (!leaf.IsArray()) return;
        if (!is_read.empty() && is_read[at.front()] == 0) return;
        CompareArrays(original, choice, at, leaf, error);
      });
}

// The tuple elements of `call` that have users; empty if all may be read. A
// rewrite may change elements without users, such as unused loop state.
std::vector<uint8_t> ReadElements(const xla::HloInstruction& call) {
  std::vector<uint8_t> is_read;
  if (!call.shape().IsTuple() || call.IsRoot()) return is_read;
  is_read.assign(call.shape().tuple_shapes().size(), 0);
  for (const xla::HloInstruction* user : call.users()) {
    if (user->opcode() != xla::HloOpcode::kGetTupleElement) return {};
    is_read[user->tuple_index()] = 1;
  }
  return is_read;
}

// Compares row-major leaves from Interpret.
void CompareOutputs(const xla::Shape& shape,
                    absl::Span<const std::string> outputs,
                    absl::Span<const std::string> other_outputs,
                    ChoiceError* error) {
  size_t next = 0;
  xla::ShapeUtil::ForEachSubshape(
      shape, [&](const xla::Shape& leaf, const xla::ShapeIndex&) {
        if (leaf.IsTuple()) return;
        const size_t i = next++;
        if (!leaf.IsArray()) return;
        xla::Shape rows = leaf;
        xla::LayoutUtil::SetToDefaultLayout(&rows);
        Compare(xla::BorrowingLiteral(outputs[i].data(), rows),
                xla::BorrowingLiteral(other_outputs[i].data(), rows),
                /*is_read=*/{}, error);
      });
}

using ChoiceErrors = std::vector<std::vector<ChoiceError>>;

// Fills `errors` from one run of the graph; returns the module's outputs.
absl::StatusOr<std::vector<std::string>> RunGraph(
    const Module& alternatives, absl::Span<const Bytes> inputs,
    ChoiceErrors* errors) {
  // The evaluator fails CHECKs on invalid modules.
  HLOENV_RETURN_IF_ERROR(alternatives.Verify());
  HLOENV_ASSIGN_OR_RETURN(Module graph, ForEvaluator(alternatives));
  auto on_custom_call = [&](const xla::HloInstruction* call,
                            absl::Span<const xla::Literal*> operands)
      -> absl::StatusOr<xla::Literal> {
    // Not by address, because the evaluator clones computations.
    const std::optional<int64_t> alternative = AlternativeOf(*call);
    if (!alternative.has_value()) {
      return Error(
          kExecuteError,
          absl::StrCat("custom call '", call->name(), "' to '",
                       call->custom_call_target(), "' cannot be evaluated"));
    }
    if (*alternative < 0 ||
        *alternative >= static_cast<int64_t>(errors->size()) ||
        operands.size() != (*errors)[*alternative].size() + 1) {
      return Error(kArgumentError,
                   absl::StrCat("'", call->name(),
                                "' is not an alternative of this capture"));
    }
    std::vector<ChoiceError>& choices = (*errors)[*alternative];
    const std::vector<uint8_t> is_read = ReadElements(*call);
    for (size_t i = 0; i < choices.size(); ++i) {
      ++choices[i].num_evaluations;
      if (operands[i + 1]->shape() == operands[0]->shape()) {
        Compare(*operands[0], *operands[i + 1], is_read, &choices[i]);
      } else {
        Compare(*operands[0], operands[i + 1]->Relayout(operands[0]->shape()),
                is_read, &choices[i]);
      }
    }
    return operands[0]->Clone();
  };
  // An attempt that fails has compared some choices already.
  const ChoiceErrors none = *errors;
  return Interpret(graph, inputs, on_custom_call, [&] { *errors = none; });
}

}  // namespace

absl::StatusOr<ChoiceErrors> VerifyAlternatives(
    const Capture& capture, absl::Span<const Bytes> inputs) {
  ChoiceErrors errors;
  for (const Alternative& alternative : capture.alternatives()) {
    errors.emplace_back(alternative.num_choices() - 1);
  }
  HLOENV_ASSIGN_OR_RETURN(Module graph, capture.Graph());
  HLOENV_ASSIGN_OR_RETURN(std::vector<std::string> outputs,
                          RunGraph(graph, inputs, &errors));
  for (size_t a = 0; a < errors.size(); ++a) {
    if (capture.alternatives()[a].kind != AlternativeKind::kPass) continue;
    for (size_t c = 0; c < errors[a].size(); ++c) {
      std::vector<int64_t> decisions(errors.size(), 0);
      decisions[a] = static_cast<int64_t>(c) + 1;
      HLOENV_ASSIGN_OR_RETURN(Module result, capture.Apply(decisions));
      HLOENV_ASSIGN_OR_RETURN(std::vector<std::string> pass_outputs,
                              Interpret(result, inputs));
      errors[a][c] = ChoiceError();
      errors[a][c].num_evaluations = 1;
      CompareOutputs(capture.module().hlo().result_shape(), outputs,
                     pass_outputs, &errors[a][c]);
    }
  }
  return errors;
}

absl::StatusOr<ChoiceErrors> VerifyGraph(const Module& graph,
                                         absl::Span<const int64_t> num_choices,
                                         absl::Span<const Bytes> inputs) {
  ChoiceErrors errors;
  for (const int64_t count : num_choices) {
    if (count < 2) {
      return Error(
          kArgumentError,
          absl::StrCat("an alternative must have >= 2 choices, got ", count));
    }
    errors.emplace_back(count - 1);
  }
  HLOENV_RETURN_IF_ERROR(RunGraph(graph, inputs, &errors).status());
  for (const AlternativeSite& site : FindAlternatives(graph.hlo())) {
    const auto a = static_cast<size_t>(site.alternative);
    if (site.kind != "pass" || a >= errors.size()) continue;
    errors[a].assign(errors[a].size(), ChoiceError());
  }
  return errors;
}

absl::StatusOr<std::vector<ChoiceError>> MeasureRounding(
    const Module& graph, absl::Span<const Bytes> inputs,
    const std::vector<int64_t>& alternatives, int num_runs) {
  HLOENV_ASSIGN_OR_RETURN(Module rounded, ForEvaluator(graph));
  HLOENV_ASSIGN_OR_RETURN(rounded, WithRoundings(rounded));
  absl::flat_hash_map<int64_t, size_t> position;
  for (size_t i = 0; i < alternatives.size(); ++i) {
    position[alternatives[i]] = i;
  }
  // For each alternative, its values in the run without perturbations.
  std::vector<std::vector<xla::Literal>> originals(alternatives.size());
  std::vector<ChoiceError> moves(alternatives.size());
  for (int run = 0; run <= num_runs; ++run) {
    std::vector<size_t> seen(alternatives.size(), 0);
    const OnCustomCall on_alternative =
        [&](const xla::HloInstruction* call,
            absl::Span<const xla::Literal*> operands)
        -> absl::StatusOr<xla::Literal> {
      const auto it = position.find(AlternativeOf(*call).value_or(-1));
      if (it == position.end()) return operands[0]->Clone();
      const size_t i = it->second;
      if (run == 0) {
        originals[i].push_back(operands[0]->Clone());
      } else if (seen[i] < originals[i].size()) {
        Compare(originals[i][seen[i]], *operands[0], ReadElements(*call),
                &moves[i]);
      }
      ++seen[i];
      return operands[0]->Clone();
    };
    HLOENV_RETURN_IF_ERROR(
        Interpret(rounded, inputs,
                  run == 0 ? KeepRoundings(on_alternative)
                           : PerturbRoundings(run, on_alternative))
            .status());
    for (size_t i = 0; i < seen.size(); ++i) {
      moves[i].num_evaluations = static_cast<int64_t>(originals[i].size());
      if (seen[i] == originals[i].size()) continue;
      // The number of evaluations is sensitive to 1 ulp.
      moves[i].absolute = std::numeric_limits<double>::infinity();
      moves[i].relative = std::numeric_limits<double>::infinity();
    }
  }
  return moves;
}

}  // namespace hloenv
