// SPDX-License-Identifier: Apache-2.0
// Proposes products of bytes for products of integers of 32 bits that are
// converted bytes or truth values:
//
//   p = s32[m,n] dot(convert(x: s8[m,k]), convert(y: s8[k,n]))
//
// becomes a dot of x and y with the same sums, of 32 bits, which the library
// multiplies 64 bytes at a time for 16 numbers. Bytes without a sign become
// such with one, 128 less:
//
//   p = s32[m,n] dot(convert(x: u8[m,k]), convert(y: s8[k,n]))
//
// becomes  dot(x - 128, y) + 128 * (the sums of y's columns). And products of
// floats for those of truth values, for which the backend has a loop:
//
//   p = pred[m,n] dot(x: pred[m,k], y: pred[k,n])
//
// becomes  dot(convert(x), convert(y)) > 0, in f32.
#include "absl/algorithm/container.h"
#include "passes/proposals/dot_rules.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/number_keys.h"
#include "support/status.h"
#include "xla/literal_util.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// What is converted to the operand of a product, if all of its numbers are
// bytes.
const HloInstruction* BytesOf(const HloInstruction& operand) {
  if (operand.opcode() != HloOpcode::kConvert || !IsPlain(operand)) {
    return nullptr;
  }
  const HloInstruction& bytes = *operand.operand(0);
  const xla::PrimitiveType type = bytes.shape().element_type();
  const bool is_narrow =
      type == xla::S8 || type == xla::U8 || type == xla::PRED;
  return is_narrow && IsPlain(bytes) ? &bytes : nullptr;
}

bool IsUnsigned(const HloInstruction& bytes) {
  return bytes.shape().element_type() == xla::U8;
}

void ProposeTruthDot(const HloInstruction& root, RuleContext&,
                     std::vector<Proposal>& proposals) {
  if (!IsPlainDot(root) || root.shape().element_type() != xla::PRED) return;
  for (const HloInstruction* operand : root.operands()) {
    if (operand->shape().element_type() != xla::PRED) return;
  }
  Propose(
      TruthRule(), root, {root.operand(0), root.operand(1)},
      [&root](absl::Span<HloInstruction* const> x) {
        std::vector<HloInstruction*> operands;
        for (HloInstruction* each : x) {
          operands.push_back(Converted({each, ""}, xla::F32).value);
        }
        HloInstruction* counts = CloneBeside(
            root, xla::ShapeUtil::ChangeElementType(root.shape(), xla::F32),
            operands);
        Elementwise build(counts->parent(), counts->shape());
        return build.Compare(xla::ComparisonDirection::kGt, counts,
                             build.Constant(0.0f));
      },
      proposals);
}

void ProposeNarrowDot(const HloInstruction& root, RuleContext&,
                      std::vector<Proposal>& proposals) {
  if (!IsPlainDot(root) || root.shape().element_type() != xla::S32) return;
  std::vector<const HloInstruction*> reads;
  for (const HloInstruction* operand : root.operands()) {
    if (operand->shape().element_type() != xla::S32) return;
    reads.push_back(BytesOf(*operand));
  }
  if (absl::c_linear_search(reads, nullptr) || IsUnsigned(*reads[0]) ||
      IsUnsigned(*reads[1])) {
    return;
  }
  Propose(
      NarrowRule(), root, std::move(reads),
      [&root](absl::Span<HloInstruction* const> x) {
        std::vector<HloInstruction*> operands;
        for (HloInstruction* each : x) {
          operands.push_back(Converted({each, ""}, xla::S8).value);
        }
        return CloneBeside(root, root.shape(), operands);
      },
      proposals);
}

// Of bytes, those with signs: without one before, 128 less.
HloInstruction* WithSigns(HloInstruction* bytes) {
  if (!IsUnsigned(*bytes)) return Converted({bytes, ""}, xla::S8).value;
  Elementwise build(bytes->parent(), bytes->shape());
  return build.Binary(HloOpcode::kAdd, build.Bits(bytes, xla::S8),
                      build.Constant<int8_t>(-128));
}

// 128 times the sums of an operand's numbers, for each number of the result.
absl::StatusOr<HloInstruction*> ShiftOf(HloInstruction* bytes,
                                        const std::string& labels,
                                        const LabelledDot& dot,
                                        const xla::Shape& result) {
  const Labelled numbers = Converted({bytes, labels}, xla::S32);
  std::vector<int64_t> summed;
  std::string left;
  for (char label : labels) {
    if (dot.result.find(label) == std::string::npos) {
      summed.push_back(numbers.At(label));
    } else {
      left += label;
    }
  }
  Elementwise build(bytes->parent(), result);
  HloInstruction* zero = build.Add(
      HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0<int32_t>(0)));
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction* const sums,
      xla::MakeReduceHlo(numbers.value, zero, summed, HloOpcode::kAdd));
  Elementwise small(bytes->parent(), sums->shape());
  Labelled shift = {
      small.Binary(HloOpcode::kMultiply, sums, small.Constant<int32_t>(128)),
      left};
  shift = Ordered(shift, shift.Those(dot.result));
  std::vector<int64_t> dimensions;
  for (char label : shift.labels) {
    dimensions.push_back(static_cast<int64_t>(dot.result.find(label)));
  }
  return build.Add(HloInstruction::CreateBroadcast(build.ShapeOf(xla::S32),
                                                   shift.value, dimensions));
}

// Where x = 128 + x' and y = 128 + y', the sum of x * y is that of x' * y' and
// of 128 * x' and 128 * y, of 32 bits, whatever is carried out of them.
absl::StatusOr<HloInstruction*> BuildShifted(
    const HloInstruction& root, absl::Span<HloInstruction* const> x) {
  const LabelledDot dot = LabelledDotOf(root);
  const xla::Shape shape =
      xla::ShapeUtil::ChangeElementType(root.shape(), xla::S32);
  HloInstruction* const left = WithSigns(x[0]);
  HloInstruction* sum = CloneBeside(root, shape, {left, WithSigns(x[1])});
  Elementwise build(sum->parent(), sum->shape());
  if (IsUnsigned(*x[0])) {
    HLOENV_ASSIGN_OR_RETURN(HloInstruction* const shift,
                            ShiftOf(x[1], dot.right, dot, shape));
    sum = build.Binary(HloOpcode::kAdd, sum, shift);
  }
  if (IsUnsigned(*x[1])) {
    HLOENV_ASSIGN_OR_RETURN(HloInstruction* const shift,
                            ShiftOf(left, dot.left, dot, shape));
    sum = build.Binary(HloOpcode::kAdd, sum, shift);
  }
  return root.shape().element_type() == xla::U32 ? build.Bits(sum, xla::U32)
                                                 : sum;
}

void ProposeShiftedDot(const HloInstruction& root, RuleContext&,
                       std::vector<Proposal>& proposals) {
  const xla::PrimitiveType type = root.shape().element_type();
  if (!IsPlainDot(root) || (type != xla::S32 && type != xla::U32)) return;
  std::vector<const HloInstruction*> reads;
  for (const HloInstruction* operand : root.operands()) {
    // XLA converts bytes to the type of the sums, as a program may.
    if (IsUnsigned(*operand) && IsPlain(*operand)) {
      reads.push_back(operand);
      continue;
    }
    if (operand->shape().element_type() != type) return;
    reads.push_back(BytesOf(*operand));
  }
  if (absl::c_linear_search(reads, nullptr)) return;
  if (!IsUnsigned(*reads[0]) && !IsUnsigned(*reads[1])) return;
  Propose(
      ShiftedRule(), root, std::move(reads),
      [&root](absl::Span<HloInstruction* const> x) {
        return BuildShifted(root, x);
      },
      proposals);
}

}  // namespace

const Rule& TruthRule() {
  static constexpr Rule rule = {
      "truth",
      "Rewrites a product of truth values as one of floats that is compared "
      "with zero. Exact.",
      &ProposeTruthDot};
  return rule;
}

const Rule& NarrowRule() {
  static constexpr Rule rule = {
      "narrow",
      "Rewrites a product of integers of 32 bits that are converted bytes or "
      "truth values as one of bytes. Exact.",
      &ProposeNarrowDot};
  return rule;
}

const Rule& ShiftedRule() {
  static constexpr Rule rule = {
      "shifted",
      "Rewrites a product of integers of 32 bits that are converted bytes, "
      "some without a sign, as one of bytes with signs, 128 less, and sums. "
      "Exact.",
      &ProposeShiftedDot};
  return rule;
}

}  // namespace hloenv
