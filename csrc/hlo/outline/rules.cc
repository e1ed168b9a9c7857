// SPDX-License-Identifier: Apache-2.0
#include "hlo/outline/rules.h"

#include <array>
#include <initializer_list>

namespace hloenv {
namespace outline_rules {
namespace {

using Rule = Why (*)(const Node&);

std::array<Rule, 256> MakeRules() {
  std::array<Rule, 256> rules{};
  const auto set = [&rules](Rule rule, std::initializer_list<Opcode> opcodes) {
    for (const Opcode opcode : opcodes) {
      rules[static_cast<uint8_t>(opcode)] = rule;
    }
  };
  set(Unary, {Opcode::kAbs,
              Opcode::kAcos,
              Opcode::kAcosh,
              Opcode::kAsin,
              Opcode::kAsinh,
              Opcode::kAtanh,
              Opcode::kCbrt,
              Opcode::kCeil,
              Opcode::kClz,
              Opcode::kConvert,
              Opcode::kCos,
              Opcode::kCosh,
              Opcode::kErf,
              Opcode::kExp,
              Opcode::kExpm1,
              Opcode::kFloor,
              Opcode::kImag,
              Opcode::kIsFinite,
              Opcode::kLog,
              Opcode::kLog1p,
              Opcode::kLogistic,
              Opcode::kNegate,
              Opcode::kNot,
              Opcode::kPopulationCount,
              Opcode::kReal,
              Opcode::kRoundNearestAfz,
              Opcode::kRoundNearestEven,
              Opcode::kRsqrt,
              Opcode::kSign,
              Opcode::kSin,
              Opcode::kSinh,
              Opcode::kSqrt,
              Opcode::kTan,
              Opcode::kTanh});
  set(Binary,
      {Opcode::kAdd, Opcode::kAnd, Opcode::kAtan2, Opcode::kDivide,
       Opcode::kMaximum, Opcode::kMinimum, Opcode::kMultiply, Opcode::kOr,
       Opcode::kPower, Opcode::kRemainder, Opcode::kShiftLeft,
       Opcode::kShiftRightArithmetic, Opcode::kShiftRightLogical,
       Opcode::kStochasticConvert, Opcode::kSubtract, Opcode::kXor});
  set(Copy, {Opcode::kCopy, Opcode::kOptimizationBarrier});
  set(DimensionSize, {Opcode::kGetDimensionSize, Opcode::kSetDimensionSize});
  set(Id, {Opcode::kPartitionId, Opcode::kReplicaId});
  set(BatchNorm, {Opcode::kBatchNormGrad, Opcode::kBatchNormInference,
                  Opcode::kBatchNormTraining});
  const struct {
    Opcode opcode;
    Rule rule;
  } kOthers[] = {
      {Opcode::kAfterAll, AfterAll},
      {Opcode::kBitcast, Bitcast},
      {Opcode::kBitcastConvert, BitcastConvert},
      {Opcode::kBroadcast, Broadcast},
      {Opcode::kCall, Call},
      {Opcode::kCholesky, Cholesky},
      {Opcode::kClamp, Clamp},
      {Opcode::kCompare, Compare},
      {Opcode::kComplex, Complex},
      {Opcode::kConcatenate, Concatenate},
      {Opcode::kConditional, Conditional},
      {Opcode::kConstant, Constant},
      {Opcode::kConvolution, Convolution},
      {Opcode::kCustomCall, CustomCall},
      {Opcode::kDot, Dot},
      {Opcode::kDynamicSlice, DynamicSlice},
      {Opcode::kDynamicUpdateSlice, DynamicUpdateSlice},
      {Opcode::kFft, Fft},
      {Opcode::kFusion, Fusion},
      {Opcode::kGather, Gather},
      {Opcode::kGetTupleElement, GetTupleElement},
      {Opcode::kIota, Iota},
      {Opcode::kMap, Map},
      {Opcode::kPad, Pad},
      {Opcode::kParameter, Parameter},
      {Opcode::kReduce, Reduce},
      {Opcode::kReducePrecision, ReducePrecision},
      {Opcode::kReduceWindow, ReduceWindow},
      {Opcode::kReshape, Reshape},
      {Opcode::kReverse, Reverse},
      {Opcode::kRng, Rng},
      {Opcode::kRngBitGenerator, RngBitGenerator},
      {Opcode::kScatter, Scatter},
      {Opcode::kSelect, Select},
      {Opcode::kSelectAndScatter, SelectAndScatter},
      {Opcode::kSlice, Slice},
      {Opcode::kSort, Sort},
      {Opcode::kTopK, TopK},
      {Opcode::kTranspose, Transpose},
      {Opcode::kTriangularSolve, TriangularSolve},
      {Opcode::kTuple, Tuple},
      {Opcode::kWhile, While},
  };
  for (const auto& each : kOthers) set(each.rule, {each.opcode});
  return rules;
}

}  // namespace
}  // namespace outline_rules

const char* CheckInstruction(const Outline& outline,
                             const OutlineComputation& computation,
                             const OutlineInstruction& instruction) {
  static const auto* const kRules =
      new std::array<outline_rules::Rule, 256>(outline_rules::MakeRules());
  const outline_rules::Rule rule =
      (*kRules)[static_cast<uint8_t>(instruction.opcode)];
  if (rule == nullptr) return "the check does not know this operation";
  return rule(outline_rules::Node(outline, computation, instruction));
}

}  // namespace hloenv