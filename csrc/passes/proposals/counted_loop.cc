// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/counted_loop.h"

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

namespace {

std::vector<HloInstruction*> ElementsOf(HloInstruction* tuple) {
  std::vector<HloInstruction*> elements;
  for (const xla::Shape& shape : tuple->shape().tuple_shapes()) {
    elements.push_back(
        tuple->AddInstruction(HloInstruction::CreateGetTupleElement(
            shape, tuple, static_cast<int64_t>(elements.size()))));
  }
  return elements;
}

// A computation with one parameter, which is its root for now.
HloInstruction* ParameterOfNew(xla::HloModule* module, const std::string& name,
                               const xla::Shape& shape) {
  HloComputation::Builder builder(name);
  HloInstruction* parameter = builder.AddInstruction(
      HloInstruction::CreateParameter(0, shape, "state"));
  module->AddEmbeddedComputation(builder.Build(parameter));
  return parameter;
}

HloComputation* ConditionOf(xla::HloModule* module, const xla::Shape& shape,
                            int32_t trips) {
  HloInstruction* state = ParameterOfNew(module, "loop_condition", shape);
  HloComputation* computation = state->parent();
  computation->set_root_instruction(
      computation->AddInstruction(HloInstruction::CreateCompare(
          xla::ShapeUtil::MakeShape(xla::PRED, {}), ElementsOf(state).front(),
          IntegerBeside(state, trips), xla::ComparisonDirection::kLt)),
      /*accept_different_shape=*/true);
  return computation;
}

HloComputation* BodyOf(xla::HloModule* module, const xla::Shape& shape,
                       const LoopBody& body) {
  HloInstruction* parameter = ParameterOfNew(module, "loop_body", shape);
  HloComputation* computation = parameter->parent();
  const std::vector<HloInstruction*> state = ElementsOf(parameter);
  std::vector<HloInstruction*> next =
      body(state.front(), absl::MakeConstSpan(state).subspan(1));
  next.insert(next.begin(),
              WithInteger(xla::HloOpcode::kAdd, state.front(), 1));
  computation->set_root_instruction(
      computation->AddInstruction(HloInstruction::CreateTuple(next)));
  return computation;
}

// Where a part starts that is smaller than `array` along one dimension only.
std::vector<HloInstruction*> StartsAlong(const HloInstruction& array,
                                         int64_t dimension,
                                         HloInstruction* start) {
  std::vector<HloInstruction*> starts(array.shape().dimensions().size(),
                                      IntegerBeside(start, 0));
  starts[dimension] = start;
  return starts;
}

}  // namespace

HloInstruction* IntegerBeside(HloInstruction* beside, int64_t number) {
  return beside->AddInstruction(HloInstruction::CreateConstant(
      xla::LiteralUtil::CreateR0(static_cast<int32_t>(number))));
}

HloInstruction* WithInteger(xla::HloOpcode opcode, HloInstruction* left,
                            int64_t right) {
  return left->AddInstruction(HloInstruction::CreateBinary(
      left->shape(), opcode, left, IntegerBeside(left, right)));
}

HloInstruction* DynamicSliceAlong(HloInstruction* array, int64_t dimension,
                                  HloInstruction* start, int64_t size) {
  xla::Shape shape = array->shape();
  shape.set_dimensions(static_cast<int>(dimension), size);
  return array->AddInstruction(HloInstruction::CreateDynamicSlice(
      shape, array, StartsAlong(*array, dimension, start), shape.dimensions()));
}

HloInstruction* DynamicUpdateAlong(HloInstruction* array, int64_t dimension,
                                   HloInstruction* start,
                                   HloInstruction* part) {
  return array->AddInstruction(HloInstruction::CreateDynamicUpdateSlice(
      array->shape(), array, part, StartsAlong(*array, dimension, start)));
}

std::vector<HloInstruction*> CountedLoop(
    int32_t trips, absl::Span<HloInstruction* const> state,
    const LoopBody& body) {
  HloComputation* computation = state.front()->parent();
  std::vector<HloInstruction*> all(state.begin(), state.end());
  all.insert(all.begin(), IntegerBeside(state.front(), 0));
  HloInstruction* initial =
      computation->AddInstruction(HloInstruction::CreateTuple(all));
  const xla::Shape& shape = initial->shape();
  HloInstruction* loop =
      computation->AddInstruction(HloInstruction::CreateWhile(
          shape, ConditionOf(computation->parent(), shape, trips),
          BodyOf(computation->parent(), shape, body), initial));
  std::vector<HloInstruction*> results = ElementsOf(loop);
  results.erase(results.begin());
  return results;
}

}  // namespace hloenv
