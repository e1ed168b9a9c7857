// SPDX-License-Identifier: Apache-2.0
#include "hlo/dot_strategy.h"

#include "support/hooks.h"
#include "support/status.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

constexpr absl::string_view kAttribute = "hloenv_dot";
constexpr absl::string_view kLoops = "loops";

// XLA's own limits for its loops, which they were tuned within.
constexpr int64_t kMaxContracted = 128;
constexpr int64_t kMaxSide = 128;
constexpr int64_t kMaxOtherSide = 32;
// Products this thin are written as simpler loops anyway.
constexpr int64_t kThin = 3;

int64_t RankOf(const HloInstruction& array) {
  return static_cast<int64_t>(array.shape().dimensions().size());
}

bool IsRowMajorMatrix(const HloInstruction& array, int64_t num_batch) {
  const xla::Shape& shape = array.shape();
  return shape.IsArray() && shape.is_static() && shape.has_layout() &&
         RankOf(array) == num_batch + 2 && shape.layout().tiles().empty() &&
         xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout());
}

template <typename Dimensions>
bool AreLeading(const Dimensions& dimensions) {
  for (int i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i] != i) return false;
  }
  return true;
}

// The sides of a matrix, batch dimensions left out.
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

// What the backend needs before it writes loops for `dot`, whoever asks.
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
  for (const HloInstruction* array : {dot.operand(0), dot.operand(1), &dot}) {
    if (!IsRowMajorMatrix(*array, num_batch) ||
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

// While the backend emits a marked dot, what it asks is what it would be told
// if the module's option were off. Other passes may have changed the dot since
// it was marked; XLA's loops do not look at layouts.
struct Result {};  // of a type that only libtensorflow can build
Result* (*emit_dot)(Result*, void*, const HloInstruction*);
Result* EmitDot(Result* result, void* emitter, const HloInstruction* dot) {
  if (!IsMarkedForLoops(*dot) || Needs(*dot) != LoopsFor::kAsIs) {
    return emit_dot(result, emitter, dot);
  }
  // FollowMarks has made this configuration the module's own.
  xla::DebugOptions& options =
      const_cast<xla::HloModuleConfig&>(dot->GetModule()->config())
          .mutable_debug_options();
  const bool before = options.xla_cpu_multi_thread_eigen();
  options.set_xla_cpu_multi_thread_eigen(false);
  emit_dot(result, emitter, dot);
  options.set_xla_cpu_multi_thread_eigen(before);
  return result;
}

}  // namespace

LoopsFor LoopsForDot(const HloInstruction& dot) {
  if (dot.opcode() != HloOpcode::kDot || IsMarkedForLoops(dot) ||
      !dot.GetModule()->config().debug_options().xla_cpu_multi_thread_eigen()) {
    return LoopsFor::kNothing;
  }
  return Needs(dot);
}

void MarkForLoops(HloInstruction* dot) {
  dot->set_frontend_attribute(kAttribute, kLoops);
}

bool IsMarkedForLoops(const HloInstruction& dot) {
  if (!dot.has_frontend_attributes()) return false;
  const auto& attributes = dot.frontend_attributes().map();
  const auto it = attributes.find(std::string(kAttribute));
  return it != attributes.end() && it->second == kLoops;
}

absl::Status FollowMarks(HloModule* module) {
  const auto is_marked = [](const HloInstruction* instruction) {
    return instruction->opcode() == HloOpcode::kDot &&
           IsMarkedForLoops(*instruction);
  };
  for (const xla::HloComputation* computation : module->computations()) {
    if (!absl::c_any_of(computation->instructions(), is_marked)) continue;
    static auto* group = new HookGroup(
        {{"_ZN3xla3cpu12ThunkEmitter12EmitDotThunkEPKNS_14HloInstructionE",
          reinterpret_cast<void*>(EmitDot),
          reinterpret_cast<void**>(&emit_dot)}});
    HLOENV_RETURN_IF_ERROR(group->Install());
    // Unshares it: the hook changes it while a dot is emitted.
    module->mutable_config();
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace hloenv
