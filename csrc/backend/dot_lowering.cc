// SPDX-License-Identifier: Apache-2.0
#include "backend/dot_lowering.h"

#include "absl/cleanup/cleanup.h"
#include "support/hooks.h"
#include "support/status.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

constexpr absl::string_view kDotAttribute = "hloenv_dot";
constexpr absl::string_view kLoops = "loops";

// XLA's own size limits for tiled LLVM IR.
constexpr int64_t kMaxContracted = 128;
constexpr int64_t kMaxSide = 128;
constexpr int64_t kMaxOtherSide = 32;

int64_t RankOf(const HloInstruction& array) {
  return static_cast<int64_t>(array.shape().dimensions().size());
}

bool IsRowMajor(const HloInstruction& array) {
  const xla::Shape& shape = array.shape();
  return shape.IsArray() && shape.is_static() && shape.has_layout() &&
         shape.layout().tiles().empty() && shape.layout().memory_space() == 0 &&
         xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout());
}

std::array<const HloInstruction*, 3> ArraysOf(const HloInstruction& dot) {
  return {dot.operand(0), dot.operand(1), &dot};
}

bool IsLoweredToLoops(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kDot &&
         instruction.get_frontend_attribute(kDotAttribute) == kLoops;
}

template <typename Dimensions>
bool AreLeading(const Dimensions& dimensions) {
  for (int i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i] != i) return false;
  }
  return true;
}

// The dimensions of a matrix, without batch dimensions.
bool IsThin(const HloInstruction& array) {
  const int64_t rank = RankOf(array);
  return array.shape().dimensions(rank - 2) <= kThin ||
         array.shape().dimensions(rank - 1) <= kThin;
}

}  // namespace

bool HasToBeTransposed(const HloInstruction& dot, int64_t operand) {
  const xla::DotDimensionNumbers& numbers = dot.dot_dimension_numbers();
  const int64_t num_batch = numbers.lhs_batch_dimensions_size();
  return operand == 0 ? numbers.lhs_contracting_dimensions(0) != num_batch + 1
                      : numbers.rhs_contracting_dimensions(0) != num_batch;
}

namespace {

// As LoopsForDot, but ignores the default lowering.
LoopsFor Needs(const HloInstruction& dot) {
  if (dot.operand_count() != 2 ||
      dot.precision_config().algorithm() != xla::PrecisionConfig::ALG_UNSET) {
    return LoopsFor::kNothing;
  }
  switch (dot.shape().element_type()) {
    case xla::F32:
    case xla::F64:
    case xla::S32:
      break;
    default:
      return LoopsFor::kNothing;
  }
  const xla::DotDimensionNumbers& numbers = dot.dot_dimension_numbers();
  const int64_t num_batch = numbers.lhs_batch_dimensions_size();
  if (numbers.lhs_contracting_dimensions_size() != 1 ||
      !AreLeading(numbers.lhs_batch_dimensions()) ||
      !AreLeading(numbers.rhs_batch_dimensions())) {
    return LoopsFor::kNothing;
  }
  for (const HloInstruction* array : ArraysOf(dot)) {
    if (!IsRowMajor(*array) || RankOf(*array) != num_batch + 2 ||
        array->shape().element_type() != dot.shape().element_type() ||
        xla::ShapeUtil::IsZeroElementArray(array->shape())) {
      return LoopsFor::kNothing;
    }
  }
  const int64_t m = dot.shape().dimensions(num_batch);
  const int64_t n = dot.shape().dimensions(num_batch + 1);
  const int64_t k =
      dot.operand(0)->shape().dimensions(numbers.lhs_contracting_dimensions(0));
  if (m == 1 || n == 1 ||
      (IsThin(*dot.operand(0)) && IsThin(*dot.operand(1))) ||
      k > kMaxContracted || std::max(m, n) > kMaxSide ||
      std::min(m, n) > kMaxOtherSide) {
    return LoopsFor::kNothing;
  }
  return HasToBeTransposed(dot, 0) || HasToBeTransposed(dot, 1)
             ? LoopsFor::kTransposed
             : LoopsFor::kAsIs;
}

// The value of xla_cpu_multi_thread_eigen while the backend emits `dot`. Passes
// may have changed a marked dot. XLA's tiled LLVM IR supports only row-major
// arrays, which XLA's layout assignment guarantees, but later layout decisions
// do not.
bool OptionFor(const HloInstruction& dot, bool now) {
  if (IsLoweredToLoops(dot) && Needs(dot) == LoopsFor::kAsIs) return false;
  const auto is_row_major = [](const HloInstruction* array) {
    return IsRowMajor(*array);
  };
  return now || !absl::c_all_of(ArraysOf(dot), is_row_major);
}

// Has the calling convention of absl::StatusOr<ThunkSequence> as a result.
struct Result {
  Result(const Result&) = delete;
  ~Result() {}
};

// The module of this thread's DotLoweringScope. Its configuration is not
// shared.
thread_local const HloModule* followed = nullptr;

Result (*emit_dot)(void*, const HloInstruction*);
Result EmitDot(void* emitter, const HloInstruction* dot) {
  if (dot->GetModule() != followed) return emit_dot(emitter, dot);
  const xla::HloModuleConfig& config = followed->config();
  const bool before = config.debug_options().xla_cpu_multi_thread_eigen();
  const bool wanted = OptionFor(*dot, before);
  if (wanted == before) return emit_dot(emitter, dot);
  xla::DebugOptions& options =
      const_cast<xla::HloModuleConfig&>(config).mutable_debug_options();
  options.set_xla_cpu_multi_thread_eigen(wanted);
  absl::Cleanup restore = [&] {
    options.set_xla_cpu_multi_thread_eigen(before);
  };
  return emit_dot(emitter, dot);
}

}  // namespace

LoopsFor LoopsForDot(const HloInstruction& dot) {
  if (dot.opcode() != HloOpcode::kDot ||
      dot.get_frontend_attribute(kDotAttribute).has_value() ||
      !dot.GetModule()->config().debug_options().xla_cpu_multi_thread_eigen()) {
    return LoopsFor::kNothing;
  }
  return Needs(dot);
}

void MarkForLoops(HloInstruction* dot) {
  dot->set_frontend_attribute(kDotAttribute, kLoops);
}

void ClearMark(HloInstruction* instruction) {
  if (instruction->has_frontend_attributes()) {
    instruction->erase_frontend_attribute(kDotAttribute);
  }
}

bool HasMarkedDots(const HloModule& module) {
  return absl::c_any_of(
      module.computations(), [](const xla::HloComputation* computation) {
        return absl::c_any_of(
            computation->instructions(),
            [](const HloInstruction* each) { return IsLoweredToLoops(*each); });
      });
}

DotLoweringScope::DotLoweringScope() : outer_(followed) {}

DotLoweringScope::~DotLoweringScope() { followed = outer_; }

absl::Status DotLoweringScope::Enter(HloModule* module) {
  const bool option =
      module->config().debug_options().xla_cpu_multi_thread_eigen();
  const auto needs_other = [option](const HloInstruction* instruction) {
    return instruction->opcode() == HloOpcode::kDot &&
           OptionFor(*instruction, option) != option;
  };
  for (const xla::HloComputation* computation : module->computations()) {
    if (!absl::c_any_of(computation->instructions(), needs_other)) continue;
    static auto* group = new HookGroup(
        {{"_ZN3xla3cpu12ThunkEmitter12EmitDotThunkEPKNS_14HloInstructionE",
          reinterpret_cast<void*>(EmitDot),
          reinterpret_cast<void**>(&emit_dot)}});
    HLOENV_RETURN_IF_ERROR(group->Install());
    // Unshares it: the hook changes it while a dot is emitted.
    module->mutable_config();
    followed = module;
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace hloenv
