// SPDX-License-Identifier: Apache-2.0
// Proposes other forms of dots: multiplications and additions for tiny
// matrices, of which the backend makes one call of a library each; see also
// few_row_dots.cc, crossed_dots.cc, dot_loops.cc and sparse_dots.cc.
#include "absl/algorithm/container.h"
#include "passes/proposals/dot_rules.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/own_kernel.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Limits of the multiplications of one product of matrices and of all, of the
// products that are added up without a loop, and of the elements of each, or
// its columns.
constexpr int64_t kMaxProductSize = 4096;
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxTerms = 8;
constexpr int64_t kMaxTermSize = 64;
constexpr int64_t kMaxColumns = 64;

std::optional<LabelledDot> TinyDotOf(const HloInstruction& dot,
                                     RuleContext& context) {
  if (!IsPlainDot(dot)) return std::nullopt;
  for (const HloInstruction* operand : dot.operands()) {
    if (context.ExtremesOf(*operand).large()) return std::nullopt;
  }
  if (!HasExactTypes(dot.operand(0)->shape(), dot.operand(1)->shape(),
                     dot.shape())) {
    return std::nullopt;
  }
  if (context.IsCompared(dot)) return std::nullopt;
  return LabelledDotOf(dot);
}

Accumulation AccumulationOf(const HloInstruction& dot) {
  return {AccumulationType(dot.shape().element_type()), {}};
}

const Rule& MultiplyReduceRule();
void ProposeMultiplyReduce(const HloInstruction& root, RuleContext& context,
                           std::vector<Proposal>& proposals) {
  const std::optional<LabelledDot> dot = TinyDotOf(root, context);
  if (!dot.has_value() || dot->terms > kMaxProductSize ||
      dot->free > kMaxProductSize / dot->terms ||
      dot->terms * dot->free > kMaxSize / dot->batch) {
    return;
  }
  Propose(
      MultiplyReduceRule(), root, {root.operand(0), root.operand(1)},
      [dot = *dot, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        HLOENV_ASSIGN_OR_RETURN(Labelled sum,
                                MultiplyOf({x[0], dot.left}, {x[1], dot.right},
                                           dot.result, AccumulationOf(root)));
        return Converted(sum, root.shape().element_type()).value;
      },
      proposals);
}
const Rule& MultiplyReduceRule() {
  static constexpr Rule rule = {
      "multiply_reduce",
      "Rewrites a dot as the multiplication of broadcast operands and a "
      "reduction, for up to 4096 multiplications for each product of matrices "
      "and 2^24 in total. Floats round differently.",
      &ProposeMultiplyReduce};
  return rule;
}

// The part of an operand at one index of the summed dimensions.
Labelled TermOf(const Labelled& operand, const std::string& summed,
                absl::Span<const int64_t> index) {
  std::vector<Cut> cuts;
  for (size_t i = 0; i < summed.size(); ++i) {
    cuts.push_back({summed[i], index[i], 1});
  }
  return WithoutUnits(Sliced(operand, cuts), summed);
}

absl::StatusOr<HloInstruction*> BuildUnrolled(
    const LabelledDot& dot, const HloInstruction& root,
    absl::Span<HloInstruction* const> x) {
  std::vector<Labelled> products;
  std::vector<int64_t> index(dot.summed.size(), 0);
  for (int64_t term = 0; term < dot.terms; ++term) {
    int64_t rest = term;
    for (size_t i = index.size(); i-- > 0;) {
      index[i] = rest % dot.summed_sizes[i];
      rest /= dot.summed_sizes[i];
    }
    HLOENV_ASSIGN_OR_RETURN(
        Labelled product,
        MultiplyOf(TermOf({x[0], dot.left}, dot.summed, index),
                   TermOf({x[1], dot.right}, dot.summed, index), dot.result,
                   AccumulationOf(root)));
    products.push_back(std::move(product));
  }
  return Converted(SumFromZero(products), root.shape().element_type()).value;
}

// A dot with few terms; and whether of many rows.
struct ShortDot {
  LabelledDot dot;
  bool is_tall;
};

std::optional<ShortDot> ShortDotOf(const HloInstruction& root,
                                   RuleContext& context) {
  std::optional<LabelledDot> dot = TinyDotOf(root, context);
  if (!dot.has_value() || dot->terms > kMaxTerms ||
      dot->free > kMaxSize / dot->batch) {
    return std::nullopt;
  }
  const int64_t columns = xla::ShapeUtil::ElementsIn(root.operand(1)->shape()) /
                          (dot->batch * dot->terms);
  const bool is_tall = dot->free > kMaxTermSize;
  if (is_tall && columns > kMaxColumns) return std::nullopt;
  return ShortDot{*std::move(dot), is_tall};
}

const Rule& UnrolledRule();
void ProposeUnrolled(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  const std::optional<ShortDot> found = ShortDotOf(root, context);
  if (!found.has_value()) return;
  Propose(
      UnrolledRule(), root, {root.operand(0), root.operand(1)},
      [dot = found->dot, &root](absl::Span<HloInstruction* const> x) {
        return BuildUnrolled(dot, root, x);
      },
      proposals);
}
const Rule& UnrolledRule() {
  static constexpr Rule rule = {
      "unrolled",
      "Rewrites a dot as a sum of multiplications of slices, for up to 8 terms "
      "in each sum, 64 elements in each product of matrices, or 64 columns of "
      "any number of rows, and 2^24 in total. Floats round differently.",
      &ProposeUnrolled};
  return rule;
}

const Rule& UnrolledApartRule();
void ProposeUnrolledApart(const HloInstruction& root, RuleContext& context,
                          std::vector<Proposal>& proposals) {
  const std::optional<ShortDot> found = ShortDotOf(root, context);
  if (!found.has_value()) return;
  // Arithmetic of complex numbers is too slow to be repeated for small ones.
  if (!found->is_tall && !xla::ShapeUtil::ElementIsComplex(root.shape())) {
    return;
  }
  Propose(
      UnrolledApartRule(), root, {root.operand(0), root.operand(1)},
      [dot = found->dot, &root](absl::Span<HloInstruction* const> x) {
        return InOwnKernel(x, [&](absl::Span<HloInstruction* const> own) {
          return BuildUnrolled(dot, root, own);
        });
      },
      proposals);
}
const Rule& UnrolledApartRule() {
  static constexpr Rule rule = {
      "unrolled_apart",
      "As unrolled, of many rows or of complex numbers, in a kernel of its "
      "own: a reduction that reads the sums would have them in its loop. "
      "Floats round differently.",
      &ProposeUnrolledApart};
  return rule;
}

// One of the parts of complex numbers.
Labelled PartOf(HloOpcode opcode, const Labelled& array) {
  const xla::Shape shape = xla::ShapeUtil::ChangeElementType(
      array.value->shape(), xla::primitive_util::ComplexComponentType(
                                array.value->shape().element_type()));
  return {array.value->AddInstruction(
              HloInstruction::CreateUnary(shape, opcode, array.value)),
          array.labels};
}

HloInstruction* BuildParts(const LabelledDot& dot, const HloInstruction& root,
                           absl::Span<HloInstruction* const> x) {
  const auto part = [&](int operand, HloOpcode opcode) {
    return PartOf(opcode, {x[operand], operand == 0 ? dot.left : dot.right});
  };
  const auto product = [&](HloOpcode left, HloOpcode right) {
    const Labelled operand = part(0, left);
    const Accumulation accumulation = {operand.value->shape().element_type(),
                                       root.precision_config()};
    return Ordered(DotOf(operand, part(1, right), dot.result, accumulation),
                   dot.result);
  };
  const auto combined = [](HloOpcode opcode, const Labelled& left,
                           const Labelled& right) {
    return left.value->AddInstruction(HloInstruction::CreateBinary(
        left.value->shape(), opcode, left.value, right.value));
  };
  HloInstruction* real = combined(HloOpcode::kSubtract,
                                  product(HloOpcode::kReal, HloOpcode::kReal),
                                  product(HloOpcode::kImag, HloOpcode::kImag));
  HloInstruction* imaginary =
      combined(HloOpcode::kAdd, product(HloOpcode::kReal, HloOpcode::kImag),
               product(HloOpcode::kImag, HloOpcode::kReal));
  return real->AddInstruction(HloInstruction::CreateBinary(
      root.shape(), HloOpcode::kComplex, real, imaginary));
}

const Rule& PartsRule();
void ProposeParts(const HloInstruction& root, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  if (!IsPlainDot(root)) return;
  const xla::PrimitiveType type = root.shape().element_type();
  for (const HloInstruction* operand : root.operands()) {
    if (operand->shape().element_type() != type) return;
    if (context.ExtremesOf(*operand).large()) return;
  }
  if (!xla::primitive_util::IsComplexType(type)) return;
  Propose(
      PartsRule(), root, {root.operand(0), root.operand(1)},
      [dot = LabelledDotOf(root), &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return BuildParts(dot, root, x);
      },
      proposals);
}
const Rule& PartsRule() {
  static constexpr Rule rule = {
      "parts",
      "Rewrites a dot of complex numbers as four dots of their real and "
      "imaginary parts. Floats round differently.",
      &ProposeParts};
  return rule;
}

absl::Span<const Rule> DotFormRules() {
  static const auto* rules = new std::vector<Rule>{
      MultiplyReduceRule(), UnrolledRule(),        UnrolledApartRule(),
      MatrixFirstRule(),    SeparateRule(),        SwappedRule(),
      SecondFirstRule(),    FirstTransposedRule(), AsStoredRule(),
      PartsRule(),          BatchLoopRule(),       FlatRule(),
      NarrowRule(),         SparseRule(),          OneHotRule(),
      TruthRule(),          ShiftedRule(),         WideRule()};
  return *rules;
}

}  // namespace

bool IsPlainDot(const HloInstruction& instruction) {
  if (instruction.opcode() != xla::HloOpcode::kDot || !IsPlain(instruction) ||
      instruction.operand_count() != 2 ||
      instruction.precision_config().algorithm() !=
          xla::PrecisionConfig::ALG_UNSET ||
      // Dimensions have labels of one character.
      RankOf(instruction.operand(0)->shape()) +
              RankOf(instruction.operand(1)->shape()) >
          kMaxLabels) {
    return false;
  }
  return absl::c_all_of(
      instruction.operands(), [](const HloInstruction* operand) {
        const xla::Shape& shape = operand->shape();
        return shape.IsArray() && shape.is_static() &&
               !xla::ShapeUtil::IsZeroElementArray(shape) &&
               !xla::primitive_util::IsSubByteNonPredType(shape.element_type());
      });
}

LabelledDot LabelledDotOf(const HloInstruction& dot) {
  const auto& numbers = dot.dot_dimension_numbers();
  const xla::Shape& left = dot.operand(0)->shape();
  const xla::Shape& right = dot.operand(1)->shape();
  LabelledDot result;
  result.left.resize(RankOf(left), '\0');
  result.right.resize(RankOf(right), '\0');
  char label = 'a';
  for (int i = 0; i < numbers.lhs_batch_dimensions_size(); ++i, ++label) {
    result.left[numbers.lhs_batch_dimensions(i)] = label;
    result.right[numbers.rhs_batch_dimensions(i)] = label;
    result.result += label;
    result.batch *= left.dimensions(numbers.lhs_batch_dimensions(i));
  }
  for (int i = 0; i < numbers.lhs_contracting_dimensions_size(); ++i, ++label) {
    const int64_t at = numbers.lhs_contracting_dimensions(i);
    result.left[at] = label;
    result.right[numbers.rhs_contracting_dimensions(i)] = label;
    result.summed += label;
    result.summed_sizes.push_back(left.dimensions(at));
    result.terms *= left.dimensions(at);
  }
  for (std::string* labels : {&result.left, &result.right}) {
    for (char& each : *labels) {
      if (each != '\0') continue;
      each = label++;
      result.result += each;
    }
  }
  result.free = xla::ShapeUtil::ElementsIn(dot.shape()) / result.batch;
  return result;
}

std::optional<StoredOperand> StoredOperandOf(const HloInstruction& operand,
                                             const std::string& labels) {
  StoredOperand stored = {&operand, labels};
  // JAX gives a transposition that moves no bytes, a layout of its own.
  if (operand.opcode() == xla::HloOpcode::kTranspose &&
      !operand.HasControlDependencies() && !operand.has_sharding()) {
    for (size_t i = 0; i < labels.size(); ++i) {
      stored.labels[operand.dimensions(i)] = labels[i];
    }
    stored.value = operand.operand(0);
  }
  if (!IsPlain(*stored.value)) return std::nullopt;
  return stored;
}

Labelled SwappedDotOf(const HloInstruction& dot, const Labelled& right,
                      const Labelled& left, const std::string& result) {
  const Accumulation accumulation = {dot.shape().element_type(),
                                     dot.precision_config()};
  return DotOf(right, left, result, WithOperandsSwapped(accumulation));
}

PassInfo DotFormsPass() {
  return RulePass(
      "dot-forms", "hloenv::DotForms",
      "Proposes multiplications and additions for dots of tiny matrices, and "
      "for dots of few rows and a transposed matrix the matrix first, or no "
      "fusion with their users, swapped or transposed operands where the first "
      "is read across its rows, matrices as they are stored, parts of complex "
      "numbers, loops over batch dimensions inside of matrices, one dimension "
      "to sum over in place of several, bytes where these are converted, and "
      "gathers for matrices that are mostly zero, and gathers or scatters for "
      "one-hot rows. Run it before layout "
      "assignment. "
      "Integer "
      "results are exact, floats round differently: the products are the same, "
      "and are summed in another order, in no shorter type. Dots that read "
      "infinities or huge masks of the module do not become multiplications.",
      DotFormRules(), [](const Options& options) {
        return MakeRulePass("dot-forms", DotFormRules(), options);
      });
}

}  // namespace hloenv
