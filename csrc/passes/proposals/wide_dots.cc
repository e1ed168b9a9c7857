// SPDX-License-Identifier: Apache-2.0
// Proposes products of bf16 whose sums are f32, for which jaxlib has a library:
//
//   d = bf16[64,32] dot(x: bf16[64,512], y: bf16[512,32])
//
// becomes  convert(f32[64,32] dot(x, y)). XLA's CPU backend converts operands
// and result of the former, and multiplies f32. It does so too where the first
// operand is read across its rows, as in the gradient of a layer with respect
// to its weights, unless that has two dimensions for one:
//
//   d = bf16[64,32] dot(x: bf16[512,64], y: bf16[512,32]), contracting 0 with 0
//
// becomes a dot of reshape(x): bf16[512,32,2], which XLA transposes in memory.
//
// What jax converts to f32, XLA does not round to bf16: neither do we.
#include <optional>
#include <string>

#include "passes/proposals/dot_rules.h"
#include "support/processor.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

struct WideDot {
  LabelledDot dot;
  StoredOperand left;
  // The dimension of it that becomes two, of which the second has `factor`
  // elements; '\0' for none.
  char split = '\0';
  int64_t factor = 1;
};

// The smallest divisor above one.
int64_t DivisorOf(int64_t size) {
  for (int64_t divisor = 2; divisor * divisor <= size; ++divisor) {
    if (size % divisor == 0) return divisor;
  }
  return size;
}

// The dimension that is neither of the batch nor summed, if XLA's dot would
// read the operand as it is, across its rows: with that dimension last, one
// summed one before it, and those of the batch first, in any order. '\0' for
// operands that XLA transposes in memory, or need not.
char ReadAcross(const StoredOperand& left, absl::string_view batch,
                absl::string_view summed) {
  std::string others;
  for (size_t d = 0; d < left.labels.size(); ++d) {
    if (left.value->shape().dimensions(static_cast<int>(d)) == 1) continue;
    const char label = left.labels[d];
    if (batch.find(label) == absl::string_view::npos) {
      others += label;
    } else if (!others.empty()) {
      return '\0';
    }
  }
  const bool is_across =
      others.size() == 2 && summed.find(others[0]) != absl::string_view::npos;
  return is_across ? others[1] : '\0';
}

// What alone reads a dot of bf16, and converts it to f32; null for others.
const HloInstruction* ConvertOf(const HloInstruction& dot) {
  if (dot.user_count() != 1 || dot.IsRoot()) return nullptr;
  const HloInstruction& user = *dot.users()[0];
  const bool is_wide = user.opcode() == xla::HloOpcode::kConvert &&
                       user.shape().element_type() == xla::F32;
  return is_wide && IsReplaceable(user) ? &user : nullptr;
}

std::optional<WideDot> WideDotOf(const HloInstruction& dot) {
  if (!IsPlainDot(dot)) return std::nullopt;
  for (const HloInstruction* operand : dot.operands()) {
    if (operand->shape().element_type() != xla::BF16) return std::nullopt;
  }
  const xla::PrimitiveType type = dot.shape().element_type();
  WideDot wide{LabelledDotOf(dot), {}};
  const std::optional<StoredOperand> left =
      StoredOperandOf(*dot.operand(0), wide.dot.left);
  // Without columns or rows, the backend has its own loops.
  const int64_t shared = wide.dot.batch * wide.dot.terms;
  if (!left.has_value() || wide.dot.terms == 1 ||
      xla::ShapeUtil::ElementsIn(dot.operand(0)->shape()) == shared ||
      xla::ShapeUtil::ElementsIn(dot.operand(1)->shape()) == shared) {
    return std::nullopt;
  }
  wide.left = *left;
  const std::string batch = wide.dot.result.substr(
      0, dot.dot_dimension_numbers().lhs_batch_dimensions_size());
  wide.split = ReadAcross(*left, batch, wide.dot.summed);
  if (wide.split != '\0') {
    const int64_t size = left->value->shape().dimensions(
        static_cast<int>(left->labels.find(wide.split)));
    wide.factor = DivisorOf(size);
    if (wide.factor == size) return std::nullopt;  // a prime number
  }
  // With results of f32, only those that XLA would convert have another form.
  const bool may_be =
      type == xla::BF16 || (type == xla::F32 && wide.split != '\0');
  return may_be ? std::make_optional(wide) : std::nullopt;
}

HloInstruction* BuildWide(const WideDot& wide,
                          const xla::PrecisionConfig& precision,
                          xla::PrimitiveType type,
                          absl::Span<HloInstruction* const> x) {
  const LabelledDot& dot = wide.dot;
  const Accumulation accumulation = {xla::F32, precision};
  Labelled left{x[0], wide.left.labels}, right{x[1], dot.right};
  Labelled product{nullptr, ""};
  // The barriers keep the simplifier from moving a transposition of the result
  // into the dot: it would be none that the library takes, nor any other code.
  if (wide.split == '\0') {
    product = DotOf(left, right, dot.result, accumulation);
    product.value = BarrierOf(product.value);
  } else {
    std::string labels;
    const std::string used = dot.left + dot.right;
    for (char label = 1; labels.size() < 2; ++label) {
      if (used.find(label) == std::string::npos) labels += label;
    }
    const int64_t size = left.SizeOf(wide.split);
    left =
        SplitLabel(left, wide.split, labels, {size / wide.factor, wide.factor});
    left.value = BarrierOf(left.value);
    std::string result = dot.result;
    result.replace(result.find(wide.split), 1, labels);
    product = DotOf(left, right, result, accumulation);
    product.value = BarrierOf(product.value);
    product = MergeLabels(Ordered(product, result), labels, wide.split);
  }
  return Converted(Ordered(product, dot.result), type).value;
}

void ProposeWide(const HloInstruction& root, RuleContext&,
                 std::vector<Proposal>& proposals) {
  if (!HasProductsOfBf16()) return;
  const bool is_converted =
      root.opcode() == xla::HloOpcode::kConvert && IsPlain(root);
  const HloInstruction& dot = is_converted ? *root.operand(0) : root;
  if (dot.opcode() != xla::HloOpcode::kDot ||
      (ConvertOf(dot) != nullptr) != is_converted) {
    return;
  }
  const std::optional<WideDot> found = WideDotOf(dot);
  if (!found.has_value()) return;
  Propose(
      WideRule(), root, {found->left.value, dot.operand(1)},
      [wide = *found, precision = dot.precision_config(),
       type = root.shape().element_type()](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return BuildWide(wide, precision, type, x);
      },
      proposals);
}

}  // namespace

const Rule& WideRule() {
  static constexpr Rule rule = {
      "wide",
      "Adds up the products of a dot of bf16 in f32, and rounds the sums: "
      "jaxlib has a library for that, where the processor multiplies bf16. "
      "Floats round differently.",
      &ProposeWide};
  return rule;
}

}  // namespace hloenv
