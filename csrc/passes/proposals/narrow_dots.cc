// SPDX-License-Identifier: Apache-2.0
// Proposes products of bytes for products of integers of 32 bits that are
// converted bytes or truth values:
//
//   p = s32[m,n] dot(convert(x: s8[m,k]), convert(y: s8[k,n]))
//
// becomes a dot of x and y with the same sums, of 32 bits, which the library
// multiplies 64 bytes at a time for 16 numbers. And products of floats for
// those of truth values, for which the backend has a loop:
//
//   p = pred[m,n] dot(x: pred[m,k], y: pred[k,n])
//
// becomes  dot(convert(x), convert(y)) > 0, in f32.
#include "absl/algorithm/container.h"
#include "passes/proposals/dot_rules.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/number_keys.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// What is converted to the operand of a product, if all of its numbers are
// bytes with signs.
const HloInstruction* BytesOf(const HloInstruction& operand) {
  if (operand.opcode() != HloOpcode::kConvert || !IsPlain(operand)) {
    return nullptr;
  }
  const HloInstruction& bytes = *operand.operand(0);
  const xla::PrimitiveType type = bytes.shape().element_type();
  const bool is_narrow = type == xla::S8 || type == xla::PRED;
  return is_narrow && IsPlain(bytes) ? &bytes : nullptr;
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
  if (absl::c_linear_search(reads, nullptr)) return;
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

}  // namespace hloenv
