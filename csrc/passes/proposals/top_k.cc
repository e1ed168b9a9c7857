// SPDX-License-Identifier: Apache-2.0
// Proposes reductions for the few largest numbers of each row, one after the
// other. XLA's backends find them by partial sorts, one row after the other on
// a CPU:
//
//   (v, i) = (f32[8,2], s32[8,2]) topk(x: f32[8,1000]), k=2
//
// becomes, with integers in the order of the numbers,
//
//   m0 = max(key(x)),  i0 = min(key(x) == m0 ? iota : 1000)
//   is_after = key(x) < m0 || (key(x) == m0 && iota > i0)
//   m1 = max(is_after ? key(x) : smallest), i1 = ...
//
// Each row has at least k numbers, so that one of those that are left is found.
// Where XLA's CPU backend has no partial sort, it sorts the rows: numbers of 8
// and 16 bits are in the order of float32 numbers, for which it has one.
#include <limits>

#include "passes/proposals/labelled.h"
#include "passes/proposals/number_keys.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/sort_rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/layout_util.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::ComparisonDirection;
using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Limit of the numbers that are found.
constexpr int64_t kMaxFound = 16;
constexpr int64_t kMaxRank = 16;

// The integers whose order is that of numbers of a type.
xla::PrimitiveType KeyTypeOf(xla::PrimitiveType type) {
  switch (type) {
    case xla::F32:
    case xla::S32:
      return xla::S32;
    case xla::F64:
    case xla::S64:
      return xla::S64;
    default:
      return xla::PRIMITIVE_TYPE_INVALID;
  }
}

struct TopK {
  int64_t count;
  bool is_largest;
};

std::optional<TopK> TopKOf(const HloInstruction& instruction) {
  if (instruction.operand_count() != 1 || !instruction.shape().IsTuple() ||
      instruction.shape().tuple_shapes().size() != 2) {
    return std::nullopt;
  }
  TopK result = {0, true};
  if (const auto* top_k = xla::DynCast<xla::HloTopKInstruction>(&instruction)) {
    result = {top_k->k(), top_k->largest()};
  } else if (instruction.IsCustomCall("TopK")) {
    const xla::Shape& values = instruction.shape().tuple_shapes(0);
    if (RankOf(values) == 0) return std::nullopt;
    result.count = values.dimensions(RankOf(values) - 1);
  } else {
    return std::nullopt;
  }
  const xla::Shape& shape = instruction.operand(0)->shape();
  const bool is_meant =
      shape.IsArray() && shape.is_static() && RankOf(shape) > 0 &&
      (KeyTypeOf(shape.element_type()) != xla::PRIMITIVE_TYPE_INVALID) &&
      shape.has_layout() &&
      xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout()) &&
      shape.layout().tiles().empty();
  if (!is_meant || result.count < 1 || result.count > kMaxFound ||
      xla::ShapeUtil::IsZeroElementArray(shape)) {
    return std::nullopt;
  }
  // Of a custom call, which anybody may write.
  xla::Shape values =
      xla::ShapeUtil::MakeShape(shape.element_type(), shape.dimensions());
  values.set_dimensions(RankOf(shape) - 1, result.count);
  const xla::Shape indices =
      xla::ShapeUtil::ChangeElementType(values, xla::S32);
  if (!xla::ShapeUtil::Compatible(instruction.shape().tuple_shapes(0),
                                  values) ||
      !xla::ShapeUtil::Compatible(instruction.shape().tuple_shapes(1),
                                  indices)) {
    return std::nullopt;
  }
  const int64_t size = shape.dimensions(RankOf(shape) - 1);
  if (result.count > size || size > std::numeric_limits<int32_t>::max() - 1) {
    return std::nullopt;
  }
  return result;
}

// Builds the reductions over the last dimension, of keys of this type.
template <typename Key>
class TopKBuilder {
 public:
  TopKBuilder(TopK top_k, HloInstruction* x)
      : top_k_(top_k),
        x_(x),
        build_(x->parent(), x->shape()),
        last_(RankOf(x->shape()) - 1),
        size_(static_cast<int32_t>(x->shape().dimensions(last_))) {}

  // The values and indices, by the reductions that `find` adds.
  template <typename Find>
  absl::StatusOr<std::vector<HloInstruction*>> Build(const Find& find) {
    HLOENV_ASSIGN_OR_RETURN(HloInstruction* const key, KeysInMemory());
    HloInstruction* iota = build_.Iota(xla::S32, last_);
    HloInstruction* is_left = nullptr;
    std::vector<Labelled> values;
    std::vector<Labelled> indices;
    for (int64_t i = 0; i < top_k_.count; ++i) {
      const auto [most, index] = find(key, iota, is_left);
      values.push_back(Column(NumberOfKey(most)));
      indices.push_back(Column(index));
      if (i + 1 == top_k_.count) break;
      HloInstruction* last_key = Spread(most);
      is_left = build_.Binary(
          HloOpcode::kOr, Compared(key, last_key, ComparisonDirection::kLt),
          build_.Binary(
              HloOpcode::kAnd,
              Compared(key, last_key, ComparisonDirection::kEq),
              Compared(iota, Spread(index), ComparisonDirection::kGt)));
    }
    return std::vector<HloInstruction*>{Concatenated(values, 'k').value,
                                        Concatenated(indices, 'k').value};
  }

  // Two reductions: the largest key, and the first index that has it.
  std::pair<HloInstruction*, HloInstruction*> ByMaxima(
      HloInstruction* key, HloInstruction* iota, HloInstruction* is_left) {
    HloInstruction* most =
        Reduced(Left(key, is_left, kMin), kMin, HloOpcode::kMaximum);
    HloInstruction* is_it =
        Compared(key, Spread(most), ComparisonDirection::kEq);
    if (is_left != nullptr) {
      is_it = build_.Binary(HloOpcode::kAnd, is_it, is_left);
    }
    return {most,
            Reduced(Left(iota, is_it, size_), size_, HloOpcode::kMinimum)};
  }

  // One reduction of both.
  std::pair<HloInstruction*, HloInstruction*> ByArgmax(
      HloInstruction* key, HloInstruction* iota, HloInstruction* is_left) {
    const std::vector<HloInstruction*> operands = {Left(key, is_left, kMin),
                                                   Left(iota, is_left, size_)};
    const std::vector<HloInstruction*> initial = {Scalar(kMin), Scalar(size_)};
    const std::vector<xla::Shape> rows = {RowShape(kKeyType),
                                          RowShape(xla::S32)};
    const xla::Shape both = xla::ShapeUtil::MakeTupleShape(rows);
    HloInstruction* reduced = build_.Add(HloInstruction::CreateReduce(
        both, operands, initial, {last_}, ArgmaxReducer()));
    const auto element = [&](int64_t i) {
      return build_.Add(
          HloInstruction::CreateGetTupleElement(rows[i], reduced, i));
    };
    return {element(0), element(1)};
  }

 private:
  static constexpr Key kMin = std::numeric_limits<Key>::min();
  static constexpr Key kMax = std::numeric_limits<Key>::max();
  static constexpr Key kZero = 0;
  static constexpr xla::PrimitiveType kKeyType =
      sizeof(Key) == sizeof(int32_t) ? xla::S32 : xla::S64;

  bool IsFloat() const { return x_->shape().element_type() != kKeyType; }
  // Integers in the order of XLA's partial sorts: that of the bits, so that -0
  // is less than 0 and not-a-number is beyond infinity, on its side.
  HloInstruction* TotalKey() {
    HloInstruction* key = x_;
    if (IsFloat()) {
      HloInstruction* bits = build_.Bits(x_, kKeyType);
      HloInstruction* magnitude =
          build_.Binary(HloOpcode::kAnd, bits, build_.Constant(kMax));
      key = build_.Select(ComparisonDirection::kLt, bits,
                          build_.Constant(kZero), build_.Not(magnitude), bits);
    }
    return top_k_.is_largest ? key : build_.Not(key);
  }
  // The same, computed once: fused with several reductions, floats could be
  // rounded differently in each, and the largest one not be found again.
  absl::StatusOr<HloInstruction*> KeysInMemory() {
    if (!IsFloat() || x_->opcode() == HloOpcode::kParameter) return TotalKey();
    return InOwnKernel({x_},
                       [this](absl::Span<HloInstruction* const> x)
                           -> absl::StatusOr<HloInstruction*> {
                         return TopKBuilder(top_k_, x[0]).TotalKey();
                       });
  }
  HloInstruction* NumberOfKey(HloInstruction* key) {
    Elementwise build(key->parent(), key->shape());
    if (!top_k_.is_largest) key = build.Not(key);
    if (!IsFloat()) return key;
    HloInstruction* negative =
        build.Binary(HloOpcode::kOr, build.Not(key), build.Constant(kMin));
    return build.Bits(build.Select(ComparisonDirection::kLt, key,
                                   build.Constant(kZero), negative, key),
                      x_->shape().element_type());
  }

  HloInstruction* Compared(HloInstruction* a, HloInstruction* b,
                           ComparisonDirection direction) {
    return build_.Add(HloInstruction::CreateCompare(build_.ShapeOf(xla::PRED),
                                                    a, b, direction));
  }
  // The numbers that are left; the others are `other`.
  template <typename T>
  HloInstruction* Left(HloInstruction* x, HloInstruction* is_left, T other) {
    if (is_left == nullptr) return x;
    return build_.Add(HloInstruction::CreateTernary(
        x->shape(), HloOpcode::kSelect, is_left, x, build_.Constant(other)));
  }
  template <typename T>
  HloInstruction* Scalar(T number) {
    return build_.Add(
        HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0<T>(number)));
  }
  xla::Shape RowShape(xla::PrimitiveType type) const {
    const auto& all = x_->shape().dimensions();
    return xla::ShapeUtil::MakeShape(
        type, absl::MakeConstSpan(all.data(), all.size() - 1));
  }
  template <typename T>
  HloInstruction* Reduced(HloInstruction* x, T initial, HloOpcode operation) {
    const xla::PrimitiveType type = x->shape().element_type();
    const xla::Shape scalar = xla::ShapeUtil::MakeShape(type, {});
    HloComputation::Builder builder("reducer");
    HloInstruction* a =
        builder.AddInstruction(HloInstruction::CreateParameter(0, scalar, "a"));
    HloInstruction* b =
        builder.AddInstruction(HloInstruction::CreateParameter(1, scalar, "b"));
    builder.AddInstruction(
        HloInstruction::CreateBinary(scalar, operation, a, b));
    HloComputation* reducer =
        x->GetModule()->AddEmbeddedComputation(builder.Build());
    return build_.Add(HloInstruction::CreateReduce(
        RowShape(type), x, Scalar(initial), {last_}, reducer));
  }
  // Of keys and indices: the larger key, of equal ones the smaller index.
  HloComputation* ArgmaxReducer() {
    const xla::Shape key = xla::ShapeUtil::MakeShape(kKeyType, {});
    const xla::Shape index = xla::ShapeUtil::MakeShape(xla::S32, {});
    const xla::Shape truth = xla::ShapeUtil::MakeShape(xla::PRED, {});
    HloComputation::Builder builder("first_largest");
    std::vector<HloInstruction*> p;
    for (int64_t i = 0; i < 4; ++i) {
      p.push_back(builder.AddInstruction(
          HloInstruction::CreateParameter(i, i % 2 == 0 ? key : index, "p")));
    }
    const auto compared = [&](int a, int b, ComparisonDirection direction) {
      return builder.AddInstruction(
          HloInstruction::CreateCompare(truth, p[a], p[b], direction));
    };
    HloInstruction* is_first_of_equals =
        builder.AddInstruction(HloInstruction::CreateBinary(
            truth, HloOpcode::kAnd, compared(0, 2, ComparisonDirection::kEq),
            compared(1, 3, ComparisonDirection::kLt)));
    HloInstruction* is_first =
        builder.AddInstruction(HloInstruction::CreateBinary(
            truth, HloOpcode::kOr, compared(0, 2, ComparisonDirection::kGt),
            is_first_of_equals));
    std::vector<HloInstruction*> results;
    for (int64_t i = 0; i < 2; ++i) {
      results.push_back(builder.AddInstruction(HloInstruction::CreateTernary(
          p[i]->shape(), HloOpcode::kSelect, is_first, p[i], p[i + 2])));
    }
    builder.AddInstruction(HloInstruction::CreateTuple(results));
    return x_->GetModule()->AddEmbeddedComputation(builder.Build());
  }
  // The number of each row for all of its elements.
  HloInstruction* Spread(HloInstruction* row) {
    std::vector<int64_t> dimensions(last_);
    for (int64_t d = 0; d < last_; ++d) dimensions[d] = d;
    return build_.Add(HloInstruction::CreateBroadcast(
        build_.ShapeOf(row->shape().element_type()), row, dimensions));
  }
  // The numbers of all rows as an array with a last dimension.
  Labelled Column(HloInstruction* row) const {
    std::string labels;
    for (int64_t d = 0; d < last_; ++d) labels += static_cast<char>('A' + d);
    return WithUnit({row, labels}, last_, 'k');
  }

  const TopK top_k_;
  HloInstruction* const x_;
  Elementwise build_;
  const int64_t last_;
  const int32_t size_;
};

template <typename Key>
absl::StatusOr<std::vector<HloInstruction*>> BuildTopK(TopK top_k,
                                                       bool is_argmax,
                                                       HloInstruction* x) {
  TopKBuilder<Key> builder(top_k, x);
  return builder.Build(
      [&](HloInstruction* key, HloInstruction* iota, HloInstruction* is_left) {
        return is_argmax ? builder.ByArgmax(key, iota, is_left)
                         : builder.ByMaxima(key, iota, is_left);
      });
}

// The live elements of the tuple that `last` is the last element of, where
// others may take their places; empty if not.
std::vector<const HloInstruction*> ElementsOf(const HloInstruction& last,
                                              RuleContext& context) {
  if (last.opcode() != HloOpcode::kGetTupleElement) return {};
  const HloInstruction& root = *last.operand(0);
  if (root.operand_count() != 1 || !root.operand(0)->shape().IsArray() ||
      root.HasControlDependencies() || root.HasSideEffect() ||
      root.has_sharding() || RankOf(root.operand(0)->shape()) > kMaxRank) {
    return {};
  }
  std::vector<const HloInstruction*> originals = LiveElementsOf(root, context);
  if (originals.empty() || originals.back() != &last) return {};
  for (const HloInstruction* each : originals) {
    if (each->opcode() != HloOpcode::kGetTupleElement || !IsPlain(*each)) {
      return {};
    }
  }
  return originals;
}

void ProposeTopK(const Rule& rule, bool is_argmax, const HloInstruction& last,
                 RuleContext& context, std::vector<Proposal>& proposals) {
  if (last.opcode() != HloOpcode::kGetTupleElement) return;
  const HloInstruction& root = *last.operand(0);
  const std::optional<TopK> top_k = TopKOf(root);
  if (!top_k.has_value()) return;
  const std::vector<const HloInstruction*> originals =
      ElementsOf(last, context);
  if (originals.empty()) return;
  ProposeMany(
      rule, originals, {root.operand(0)},
      [top_k = *top_k, originals,
       is_argmax](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<std::vector<HloInstruction*>> {
        const bool is_wide =
            KeyTypeOf(x[0]->shape().element_type()) == xla::S64;
        HLOENV_ASSIGN_OR_RETURN(
            const std::vector<HloInstruction*> both,
            is_wide ? BuildTopK<int64_t>(top_k, is_argmax, x[0])
                    : BuildTopK<int32_t>(top_k, is_argmax, x[0]));
        std::vector<HloInstruction*> results;
        results.reserve(originals.size());
        for (const HloInstruction* each : originals) {
          results.push_back(both[each->tuple_index()]);
        }
        return results;
      },
      proposals);
}

// Whether all numbers of a type are float32 numbers, too.
bool IsNarrow(xla::PrimitiveType type) {
  switch (type) {
    case xla::BF16:
    case xla::F16:
    case xla::S8:
    case xla::U8:
    case xla::S16:
    case xla::U16:
      return true;
    default:
      return false;
  }
}

// Float32 numbers in the order of floats or integers of 8 and 16 bits. Those of
// floats by their bits: converted, they would be compared as they were before
// they were rounded (xla_allow_excess_precision).
HloInstruction* WideOf(HloInstruction* x, Elementwise& build) {
  const xla::PrimitiveType type = x->shape().element_type();
  if (type != xla::BF16 && type != xla::F16) return build.Convert(x, xla::F32);
  HloInstruction* bits = build.Bits(x, xla::S16);
  if (type == xla::BF16) {
    HloInstruction* upper =
        build.Binary(HloOpcode::kShiftLeft, build.Convert(bits, xla::S32),
                     build.Constant<int32_t>(16));
    // Subnormal numbers are zeros to the backend's sort.
    HloInstruction* magnitude =
        build.Binary(HloOpcode::kAnd, upper,
                     build.Constant(std::numeric_limits<int32_t>::max()));
    HloInstruction* sign =
        build.Binary(HloOpcode::kAnd, upper,
                     build.Constant(std::numeric_limits<int32_t>::min()));
    upper = build.Select(ComparisonDirection::kLt, magnitude,
                         build.Constant<int32_t>(0x00800000), sign, upper);
    return build.Bits(upper, xla::F32);
  }
  // Whole numbers.
  constexpr int16_t kMax = std::numeric_limits<int16_t>::max();
  HloInstruction* magnitude =
      build.Binary(HloOpcode::kAnd, bits, build.Constant(kMax));
  return build.Convert(
      build.Select(ComparisonDirection::kLt, bits, build.Constant<int16_t>(0),
                   build.Not(magnitude), bits),
      xla::F32);
}

// The numbers of a type that these are for.
HloInstruction* NarrowOf(HloInstruction* wide, xla::PrimitiveType type) {
  Elementwise build(wide->parent(), wide->shape());
  if (type != xla::F16) return build.Convert(wide, type);
  HloInstruction* key = build.Convert(wide, xla::S16);
  constexpr int16_t kMin = std::numeric_limits<int16_t>::min();
  HloInstruction* negative =
      build.Binary(HloOpcode::kOr, build.Not(key), build.Constant(kMin));
  return build.Bits(build.Select(ComparisonDirection::kLt, key,
                                 build.Constant<int16_t>(0), negative, key),
                    type);
}

void ProposeWider(const HloInstruction& last, RuleContext& context,
                  std::vector<Proposal>& proposals) {
  const std::vector<const HloInstruction*> originals =
      ElementsOf(last, context);
  if (originals.empty()) return;
  const HloInstruction& root = *last.operand(0);
  const xla::Shape& shape = root.operand(0)->shape();
  if (xla::DynCast<xla::HloTopKInstruction>(&root) == nullptr ||
      !shape.is_static() || !IsNarrow(shape.element_type()) ||
      !IsPlain(*root.operand(0))) {
    return;
  }
  // Those of bfloat16 are taken at their indices.
  if (shape.element_type() == xla::BF16 &&
      (xla::ShapeUtil::ElementsIn(shape) >
           std::numeric_limits<int32_t>::max() ||
       (shape.has_layout() &&
        !xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout())))) {
    return;
  }
  ProposeMany(
      WiderRule(), originals, {root.operand(0)},
      [originals, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<std::vector<HloInstruction*>> {
        Elementwise build(x[0]->parent(), x[0]->shape());
        xla::Shape both = root.shape();
        both.mutable_tuple_shapes(0)->set_element_type(xla::F32);
        HloInstruction* found =
            build.Add(root.CloneWithNewOperands(both, {WideOf(x[0], build)}));
        std::vector<HloInstruction*> results;
        for (const HloInstruction* each : originals) {
          const int64_t at = each->tuple_index();
          HloInstruction* element =
              build.Add(HloInstruction::CreateGetTupleElement(
                  both.tuple_shapes(at), found, at));
          const xla::PrimitiveType type = each->shape().element_type();
          if (at == 0 && type == xla::BF16) {
            // Subnormal numbers are themselves, in the order of zeros.
            HloInstruction* indices =
                build.Add(HloInstruction::CreateGetTupleElement(
                    both.tuple_shapes(1), found, 1));
            element = TakenAlong(x[0], indices, RankOf(x[0]->shape()) - 1);
          } else if (at == 0) {
            element = NarrowOf(element, type);
          }
          results.push_back(element);
        }
        return results;
      },
      proposals);
}

}  // namespace

const Rule& WiderRule() {
  static constexpr Rule rule = {
      "wider",
      "Finds the largest or smallest numbers of rows of 8 and 16 bits as those "
      "of float32, for which the backend has partial sorts. Exact.",
      &ProposeWider};
  return rule;
}

const Rule& MaximaRule() {
  static constexpr Rule rule = {
      "maxima",
      "Rewrites the up to 16 largest or smallest numbers of rows as as many "
      "pairs of reductions: the largest number that is left, and its index. "
      "Exact.",
      [](const HloInstruction& last, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeTopK(MaximaRule(), false, last, context, proposals);
      }};
  return rule;
}

const Rule& ArgmaxesRule() {
  static constexpr Rule rule = {
      "argmaxes",
      "Rewrites the up to 16 largest or smallest numbers of rows as as many "
      "reductions of numbers with their indices. Exact.",
      [](const HloInstruction& last, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeTopK(ArgmaxesRule(), true, last, context, proposals);
      }};
  return rule;
}

}  // namespace hloenv
