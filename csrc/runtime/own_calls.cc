// SPDX-License-Identifier: Apache-2.0
#include "runtime/own_calls.h"

#include "absl/strings/match.h"
#include "support/status.h"

namespace hloenv {
namespace {

// A static string that describes the error; null for none.
using Reason = const char*;
using Call = xla::HloInstruction;

bool IsMatrix(const xla::Shape& shape) {
  return shape.IsArray() && shape.dimensions().size() >= 2;
}

Reason CheckOneOperand(const Call& call) {
  return call.operand_count() == 1 ? nullptr : "it takes one operand";
}

Reason CheckOneMatrix(const Call& call) {
  return call.operand_count() == 1 && IsMatrix(call.operand(0)->shape())
             ? nullptr
             : "it takes one array of two or more dimensions";
}

Reason CheckReflectors(const Call& call) {
  return call.operand_count() == 2 && IsMatrix(call.operand(0)->shape()) &&
                 call.operand(1)->shape().IsArray() &&
                 call.operand(1)->shape().dimensions().size() + 1 ==
                     call.operand(0)->shape().dimensions().size()
             ? nullptr
             : "it takes matrices and a factor for each column";
}

// (f32[n]) or (f32[b,n]) to (f32[k], s32[k]) or (f32[b,k], s32[b,k]).
Reason CheckTopK(const Call& call) {
  if (call.operand_count() != 1) return "it takes one operand";
  const xla::Shape& input = call.operand(0)->shape();
  if (!input.IsArray() || input.element_type() != xla::F32 ||
      input.dimensions().empty() || input.dimensions().size() > 2) {
    return "it takes f32 of one or two dimensions";
  }
  const xla::Shape& result = call.shape();
  if (!result.IsTuple() || result.tuple_shapes().size() != 2 ||
      result.tuple_shapes(0).element_type() != xla::F32 ||
      result.tuple_shapes(1).element_type() != xla::S32) {
    return "its result is a tuple of f32 and s32";
  }
  for (const xla::Shape& each : result.tuple_shapes()) {
    if (each.dimensions().size() != input.dimensions().size() ||
        each.dimensions().back() > input.dimensions().back() ||
        each.dimensions().back() !=
            result.tuple_shapes(0).dimensions().back() ||
        each.dimensions(0) > input.dimensions(0) ||
        (each.dimensions().size() == 2 &&
         each.dimensions(0) != input.dimensions(0))) {
      return "its results do not fit its operand";
    }
  }
  return nullptr;
}

Reason CheckSliceToDynamic(const Call& call) {
  const xla::Shape& result = call.shape();
  if (!result.IsArray() || !result.is_dynamic()) {
    return "its result is an array with a dynamic dimension";
  }
  if (call.operand_count() !=
      static_cast<int64_t>(result.dimensions().size()) + 1) {
    return "it takes an array and the size of each dimension";
  }
  const xla::Shape& input = call.operand(0)->shape();
  if (!input.IsArray() || input.dimensions() != result.dimensions() ||
      input.element_type() != result.element_type()) {
    return "its result does not fit its operand";
  }
  for (int64_t i = 1; i < call.operand_count(); ++i) {
    const xla::Shape& size = call.operand(i)->shape();
    if (!size.IsArray() || size.element_type() != xla::S32 ||
        !size.dimensions().empty()) {
      return "sizes are s32[]";
    }
  }
  return nullptr;
}

Reason CheckPadToStatic(const Call& call) {
  if (call.operand_count() != 1 || !call.operand(0)->shape().IsArray()) {
    return "it takes one array";
  }
  return call.shape().IsTuple() &&
                 call.shape().tuple_shapes().size() ==
                     call.operand(0)->shape().dimensions().size() + 1
             ? nullptr
             : "its result is an array and the size of each dimension";
}

Reason CheckCall(const Call& call, absl::string_view target) {
  static constexpr struct {
    absl::string_view target;
    Reason (*check)(const Call&);
  } kChecks[] = {
      {"Eigh", CheckOneMatrix},
      {"PadToStatic", CheckPadToStatic},
      {"ProductOfElementaryHouseholderReflectors", CheckReflectors},
      {"Qr", CheckOneMatrix},
      {"SPMDFullToShardShape", CheckOneOperand},
      {"SPMDShardToFullShape", CheckOneOperand},
      {"Sharding", CheckOneOperand},
      {"SliceToDynamic", CheckSliceToDynamic},
      {"TopK", CheckTopK},
  };
  for (const auto& each : kChecks) {
    if (each.target == target) return each.check(call);
  }
  return nullptr;
}

absl::Status CheckNotOpaque(const xla::Shape& shape) {
  absl::Status status;
  xla::ShapeUtil::ForEachSubshape(
      shape, [&](const xla::Shape& leaf, const xla::ShapeIndex&) {
        if (!leaf.IsOpaque()) return;
        status = Error(kCompileError,
                       "an input or output of type opaque[] cannot be a numpy "
                       "array");
      });
  return status;
}

template <typename Check>
absl::Status ForEachCustomCall(const xla::HloModule& module, Check check) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() != xla::HloOpcode::kCustomCall) continue;
      HLOENV_RETURN_IF_ERROR(
          check(*instruction, instruction->custom_call_target()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOwnCalls(const xla::HloModule& module) {
  for (const xla::HloInstruction* parameter :
       module.entry_computation()->parameter_instructions()) {
    HLOENV_RETURN_IF_ERROR(CheckNotOpaque(parameter->shape()));
  }
  HLOENV_RETURN_IF_ERROR(
      CheckNotOpaque(module.entry_computation()->root_instruction()->shape()));
  return ForEachCustomCall(
      module, [](const Call& call, const std::string& target) {
        const Reason reason = CheckCall(call, target);
        if (reason == nullptr) return absl::OkStatus();
        return Error(kCompileError, absl::StrCat("custom call '", call.name(),
                                                 "' of XLA's own target '",
                                                 target, "': ", reason));
      });
}

bool CallsOneDnn(const xla::HloModule& module) {
  return !CheckNoOneDnn(module).ok();
}

absl::Status CheckNoOneDnn(const xla::HloModule& module) {
  return ForEachCustomCall(module, [](const Call& call,
                                      const std::string& target) {
    if (!absl::StartsWith(target, "__onednn$")) return absl::OkStatus();
    return Error(
        kCompileError,
        absl::StrCat("custom call '", call.name(), "' of '", target,
                     "' is made by passes: if XLA's pipeline has run on the "
                     "module, compile it with finish='none'; if it was "
                     "decided (onednn-calls), load it from a file that "
                     "HloModule.save has written"));
  });
}

}  // namespace hloenv
