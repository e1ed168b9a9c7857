// SPDX-License-Identifier: Apache-2.0
// Proposes loops with several iterations of the original in each of theirs, so
// that there are fewer kernels to start, and instructions of one iteration can
// be fused with those of the next:
//
//   r = while(i = 0, x), i < 100: (i + 1, f(x))
//
// becomes, with 100 = 12 * 8 + 4,
//
//   r = while(i = 4, f(f(f(f(x))))), i < 100: (i + 8, f(... f(x)))
//
// and a loop of no more than 8 iterations becomes these.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/loop_rules.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

constexpr int64_t kMany = 8;
constexpr int64_t kTwo = 2;
// Limit of the instructions that the new loop has for those of the original,
// and of the constants, which it has twice.
constexpr int64_t kMaxInstructions = 4096;
constexpr int64_t kMaxLiteralBytes = int64_t{1} << 28;

HloInstruction* Constant(HloComputation* computation, int64_t number,
                         const xla::Shape& shape) {
  return computation->AddInstruction(
      HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0(number)
                                         .Convert(shape.element_type())
                                         .value()));
}

// Adds a number to an integer.
HloInstruction* Plus(HloInstruction* x, int64_t number) {
  if (number == 0) return x;
  return x->parent()->AddInstruction(
      HloInstruction::CreateBinary(x->shape(), HloOpcode::kAdd, x,
                                   Constant(x->parent(), number, x->shape())));
}

}  // namespace

bool MayRepeat(const HloInstruction& loop, int64_t factor) {
  int64_t instructions = 0;
  int64_t literal_bytes = 0;
  double most = 0;
  double state = 0;
  for (const HloInstruction* each : loop.while_body()->instructions()) {
    if (!IsRepeatable(*each)) return false;
    instructions += each->opcode() == HloOpcode::kFusion
                        ? each->fused_instruction_count()
                        : 1;
    if (!each->shape().IsArray()) continue;
    if (each->opcode() == HloOpcode::kConstant) {
      literal_bytes += each->literal().size_bytes();
      continue;
    }
    const auto elements =
        static_cast<double>(xla::ShapeUtil::ElementsIn(each->shape()));
    if (ElementOf(*each) >= 0) {
      state += elements;
    } else {
      most = std::max(most, elements);
    }
  }
  // In front of the loop, and in it.
  return instructions * 2 * factor <= kMaxInstructions &&
         literal_bytes <= kMaxLiteralBytes &&
         FitsBeside(most * static_cast<double>(factor), state);
}

namespace {

// The constants of a body in another computation.
using Constants = absl::flat_hash_map<const HloInstruction*, HloInstruction*>;

// Adds one iteration to the computation of the state, and replaces it.
void Iterate(const HloComputation& body, std::vector<HloInstruction*>& state,
             Constants& constants) {
  HloComputation* computation = state.front()->parent();
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> images;
  for (const HloInstruction* each : body.MakeInstructionPostOrder()) {
    if (each == body.root_instruction() ||
        each->opcode() == HloOpcode::kParameter) {
      continue;
    }
    if (const int64_t element = ElementOf(*each); element >= 0) {
      images[each] = state[element];
    } else if (each->opcode() == HloOpcode::kConstant) {
      HloInstruction*& constant = constants[each];
      if (constant == nullptr) {
        constant = computation->AddInstruction(each->Clone());
      }
      images[each] = constant;
    } else if (each->operand_count() == 0) {
      images[each] = computation->AddInstruction(each->Clone());
    } else {
      std::vector<HloInstruction*> operands;
      for (const HloInstruction* operand : each->operands()) {
        operands.push_back(images.at(operand));
      }
      images[each] = CloneBeside(*each, each->shape(), operands);
    }
  }
  for (int64_t i = 0; i < body.root_instruction()->operand_count(); ++i) {
    state[i] = images.at(body.root_instruction()->operand(i));
  }
}

// A computation with the tuple as its parameter, and this as its root for now.
std::pair<HloInstruction*, std::vector<HloInstruction*>> StateOfNew(
    xla::HloModule* module, const xla::Shape& shape) {
  HloComputation::Builder builder("iterations");
  HloInstruction* parameter = builder.AddInstruction(
      HloInstruction::CreateParameter(0, shape, "state"));
  module->AddEmbeddedComputation(builder.Build(parameter));
  std::vector<HloInstruction*> elements;
  for (const xla::Shape& each : shape.tuple_shapes()) {
    elements.push_back(
        parameter->AddInstruction(HloInstruction::CreateGetTupleElement(
            each, parameter, static_cast<int64_t>(elements.size()))));
  }
  return {parameter, std::move(elements)};
}

}  // namespace

std::vector<HloInstruction*> Unrolled(
    const HloInstruction& loop, const Counted& counted, int64_t factor,
    absl::Span<HloInstruction* const> initial) {
  const int64_t trips = counted.trips;
  HloComputation* computation = initial.front()->parent();
  std::vector<HloInstruction*> state(initial.begin(), initial.end());
  const int64_t head = trips <= factor ? trips : trips % factor;
  Constants constants;
  for (int64_t i = 0; i < head; ++i) {
    Iterate(*loop.while_body(), state, constants);
  }
  if (head == trips) return state;
  // XLA counts the iterations of loops that start at a constant, and whose
  // index is one sum.
  state[counted.index] = Constant(computation, counted.start + head,
                                  state[counted.index]->shape());

  auto [parameter, next] = StateOfNew(computation->parent(), loop.shape());
  HloComputation* body = parameter->parent();
  HloInstruction* index = next[counted.index];
  Constants body_constants;
  for (int64_t i = 0; i < factor; ++i) {
    next[counted.index] = Plus(index, i);
    Iterate(*loop.while_body(), next, body_constants);
  }
  next[counted.index] = Plus(index, factor);
  body->set_root_instruction(
      body->AddInstruction(HloInstruction::CreateTuple(next)));
  // The condition's parameter has the layouts of the state.
  *body->root_instruction()->mutable_shape() = loop.shape();
  HloInstruction* tuple =
      computation->AddInstruction(HloInstruction::CreateTuple(state));
  *tuple->mutable_shape() = loop.shape();
  HloComputation* condition = computation->parent()->AddEmbeddedComputation(
      loop.while_condition()->Clone("unrolled"));
  HloInstruction* result = computation->AddInstruction(
      HloInstruction::CreateWhile(loop.shape(), condition, body, tuple));
  for (int64_t i = 0; i < static_cast<int64_t>(state.size()); ++i) {
    state[i] =
        computation->AddInstruction(HloInstruction::CreateGetTupleElement(
            loop.shape().tuple_shapes(i), result, i));
  }
  return state;
}

void ProposeUnrolled(const Rule& rule, int64_t factor,
                     const HloInstruction& last, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  const std::optional<FoundLoop> found = FoundLoopOf(last, context);
  if (!found.has_value() || !MayRepeat(*found->loop, factor)) return;
  // Repeated operands are read once.
  std::vector<const HloInstruction*> reads;
  std::vector<size_t> read_of;
  for (const HloInstruction* each : found->loop->operand(0)->operands()) {
    const auto place = std::find(reads.begin(), reads.end(), each);
    read_of.push_back(static_cast<size_t>(place - reads.begin()));
    if (place == reads.end()) reads.push_back(each);
  }
  ProposeMany(
      rule, found->originals, reads,
      [found = *found, read_of = std::move(read_of),
       factor](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<std::vector<HloInstruction*>> {
        std::vector<HloInstruction*> state;
        state.reserve(read_of.size());
        for (const size_t read : read_of) state.push_back(x[read]);
        state = Unrolled(*found.loop, found.counted, factor, state);
        std::vector<HloInstruction*> results;
        results.reserve(found.originals.size());
        for (const HloInstruction* each : found.originals) {
          results.push_back(state[each->tuple_index()]);
        }
        return results;
      },
      proposals);
}

namespace {

const Rule& UnrolledRule() {
  static constexpr Rule rule = {
      "unrolled",
      "Rewrites a loop that counts from one constant to another as one with "
      "eight iterations in each, and loops of no more than eight as these. The "
      "operations are the same, but fused kernels may round differently.",
      [](const HloInstruction& last, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeUnrolled(UnrolledRule(), kMany, last, context, proposals);
      }};
  return rule;
}

const Rule& PairsRule() {
  static constexpr Rule rule = {
      "pairs",
      "Rewrites a loop that counts from one constant to another as one with "
      "two iterations in each. The operations are the same, but fused kernels "
      "may round differently.",
      [](const HloInstruction& last, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeUnrolled(PairsRule(), kTwo, last, context, proposals);
      }};
  return rule;
}

absl::Span<const Rule> LoopFormRules() {
  static const auto* rules = new std::vector<Rule>{UnrolledRule(), PairsRule()};
  return *rules;
}

}  // namespace

PassInfo LoopFormsPass() {
  return RulePass(
      "loop-forms", "hloenv::LoopForms",
      "Proposes loops with two or eight iterations of a counted loop in each "
      "of theirs, so that fewer kernels are started and those of consecutive "
      "iterations can be fused. Loops in its body are left alone. Run it "
      "before layout assignment.",
      LoopFormRules(), [](const Options& options) {
        return MakeRulePass("loop-forms", LoopFormRules(), options);
      });
}

}  // namespace hloenv
