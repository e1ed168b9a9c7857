// SPDX-License-Identifier: Apache-2.0
// Linear algebra of many tiny matrices as arithmetic over all of them: jax
// calls LAPACK for each matrix. For example
//
//   x = f32[1000,2,1] custom-call(a, b), target="lapack_strsm_ffi", lower
//
// becomes, with all first elements of the matrices a11, and so on,
//
//   x1 = b1 / a11,  x2 = (b2 - a21 * x1) / a22
//
// of which LLVM makes vectors over the matrices.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "passes/proposals/math_rules.h"
#include "passes/proposals/own_kernel.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::ComparisonDirection;
using xla::HloInstruction;
using xla::HloOpcode;

// Rows of matrices, and elements of solutions, up to which arithmetic was
// faster: XLA's fusion computes what several results need for each of them.
constexpr int64_t kMaxSolved = 8, kMaxSolutions = 36;
constexpr int64_t kMaxCholesky = 6, kMaxLu = 6;
// Rows up to which all steps of an elimination may be in one kernel.
constexpr int64_t kMaxFusedLu = 3;

// The instruction of a row and a column, for all matrices: rank 1.
using Elements = std::vector<std::vector<HloInstruction*>>;

// Adds matrices' elements to a computation, and matrices of elements.
class Tiny {
 public:
  Tiny(xla::HloComputation* computation, const xla::Shape& matrices)
      : count_(xla::ShapeUtil::ElementsIn(matrices) / RowsOf(matrices) /
               ColumnsOf(matrices)),
        build_(computation,
               xla::ShapeUtil::MakeShape(matrices.element_type(), {count_})) {}

  static int64_t RowsOf(const xla::Shape& shape) {
    return shape.dimensions(shape.dimensions().size() - 2);
  }
  static int64_t ColumnsOf(const xla::Shape& shape) {
    return shape.dimensions().back();
  }

  Elementwise& build() { return build_; }

  Elements ElementsOf(HloInstruction* x) {
    const int64_t rows = RowsOf(x->shape());
    const int64_t columns = ColumnsOf(x->shape());
    const xla::PrimitiveType type = x->shape().element_type();
    HloInstruction* flat = build_.Add(HloInstruction::CreateReshape(
        xla::ShapeUtil::MakeShape(type, {count_, rows, columns}), x));
    Elements elements(rows);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        HloInstruction* slice = build_.Add(HloInstruction::CreateSlice(
            xla::ShapeUtil::MakeShape(type, {count_, 1, 1}), flat, {0, i, j},
            {count_, i + 1, j + 1}, {1, 1, 1}));
        elements[i].push_back(build_.Add(
            HloInstruction::CreateReshape(build_.ShapeOf(type), slice)));
      }
    }
    return elements;
  }
  // `parts` one after the other, as the last dimensions of `shape`.
  HloInstruction* Whole(const std::vector<HloInstruction*>& parts,
                        const xla::Shape& shape) {
    const xla::PrimitiveType type = parts[0]->shape().element_type();
    const auto size = static_cast<int64_t>(parts.size());
    HloInstruction* whole = parts[0];
    if (size > 1) {
      std::vector<HloInstruction*> rows;
      for (HloInstruction* part : parts) {
        rows.push_back(build_.Add(HloInstruction::CreateReshape(
            xla::ShapeUtil::MakeShape(type, {1, count_}), part)));
      }
      whole = build_.Add(HloInstruction::CreateConcatenate(
          xla::ShapeUtil::MakeShape(type, {size, count_}), rows, 0));
      whole = build_.Add(HloInstruction::CreateTranspose(
          xla::ShapeUtil::MakeShape(type, {count_, size}), whole, {1, 0}));
    }
    return build_.Add(HloInstruction::CreateReshape(
        xla::ShapeUtil::MakeShape(type, shape.dimensions()), whole));
  }

 private:
  const int64_t count_;
  Elementwise build_;
};

// Results, each of some elements for all matrices.
using Results = std::vector<std::vector<HloInstruction*>>;
using ResultsOf = std::function<absl::StatusOr<Results>(Tiny&, Arrays)>;

std::vector<HloInstruction*> Flat(const Elements& elements) {
  std::vector<HloInstruction*> all;
  for (const auto& row : elements)
    all.insert(all.end(), row.begin(), row.end());
  return all;
}

// The results of a function of matrices, as arrays of `shapes`. Not in one
// kernel with what reads them: XLA would make no vectors.
absl::StatusOr<std::vector<HloInstruction*>> Apart(
    Arrays operands, const std::vector<xla::Shape>& shapes,
    const ResultsOf& function) {
  std::vector<size_t> sizes;
  const auto body = [&](Arrays in) -> absl::StatusOr<HloInstruction*> {
    Tiny tiny(in[0]->parent(), in[0]->shape());
    HLOENV_ASSIGN_OR_RETURN(const Results all, function(tiny, in));
    for (const auto& each : all) sizes.push_back(each.size());
    return in[0]->parent()->AddInstruction(
        HloInstruction::CreateTuple(Flat(all)));
  };
  HLOENV_ASSIGN_OR_RETURN(HloInstruction * call, InOwnKernel(operands, body));
  Tiny tiny(operands[0]->parent(), operands[0]->shape());
  std::vector<HloInstruction*> results;
  int64_t index = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::vector<HloInstruction*> parts;
    for (size_t j = 0; j < sizes[i]; ++j) {
      parts.push_back(tiny.build().Add(
          HloInstruction::CreateGetTupleElement(call, index++)));
    }
    results.push_back(tiny.Whole(parts, shapes[i]));
  }
  return results;
}

// --- Triangular matrices ----------------------------------------------------

struct Solve {
  bool is_left = false;
  bool is_lower = false;
  bool is_transposed = false;
  bool has_unit_diagonal = false;
};

// x, where a * x = b.
absl::StatusOr<Results> Solved(const Solve& solve, Tiny& tiny, Arrays in) {
  Elementwise& build = tiny.build();
  const Elements a = tiny.ElementsOf(in[0]);
  const Elements b = tiny.ElementsOf(in[1]);
  // x * a = b is a' * x' = b'.
  const bool is_turned = solve.is_transposed == solve.is_left;
  const auto matrix = [&](size_t i, size_t j) {
    return is_turned ? a[j][i] : a[i][j];
  };
  const bool is_lower = solve.is_lower != is_turned;
  const size_t rows = a.size();
  const size_t columns = solve.is_left ? b[0].size() : b.size();
  Elements x(rows, std::vector<HloInstruction*>(columns));
  for (size_t step = 0; step < rows; ++step) {
    const size_t i = is_lower ? step : rows - 1 - step;
    for (size_t c = 0; c < columns; ++c) {
      HloInstruction* value = solve.is_left ? b[i][c] : b[c][i];
      for (size_t before = 0; before < step; ++before) {
        const size_t k = is_lower ? before : rows - 1 - before;
        value = build.Binary(
            HloOpcode::kSubtract, value,
            build.Binary(HloOpcode::kMultiply, matrix(i, k), x[k][c]));
      }
      if (!solve.has_unit_diagonal) {
        value = build.Binary(HloOpcode::kDivide, value, matrix(i, i));
      }
      x[i][c] = value;
    }
  }
  std::vector<HloInstruction*> all;
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t j = 0; j < b[0].size(); ++j) {
      all.push_back(solve.is_left ? x[i][j] : x[j][i]);
    }
  }
  return Results{all};
}

// --- Factors ----------------------------------------------------------------

// The first step that failed, from 1 on, or 0.
class Failure {
 public:
  explicit Failure(Elementwise& build)
      : build_(build), zero_(build.Constant<int32_t>(0)), first_(zero_) {}
  // Notes a step, where `is_failed` holds.
  void Add(HloInstruction* is_failed, int64_t step) {
    HloInstruction* found = build_.Where(
        is_failed, build_.Constant(static_cast<int32_t>(step + 1)), zero_);
    first_ =
        build_.Select(ComparisonDirection::kEq, first_, zero_, found, first_);
  }
  HloInstruction* first() const { return first_; }

 private:
  Elementwise& build_;
  HloInstruction* zero_;
  HloInstruction* first_;
};

// The triangular factor beside the other triangle as it was, and the failure.
absl::StatusOr<Results> CholeskyOf(bool is_lower, Tiny& tiny, Arrays in) {
  Elementwise& build = tiny.build();
  Elements a = tiny.ElementsOf(in[0]);
  const auto at = [&](size_t i, size_t j) -> HloInstruction*& {
    return is_lower ? a[i][j] : a[j][i];
  };
  HloInstruction* zero =
      build.Convert(build.Number(0.0), in[0]->shape().element_type());
  Failure failure(build);
  const auto less = [&](HloInstruction* from, HloInstruction* x,
                        HloInstruction* y) {
    return build.Binary(HloOpcode::kSubtract, from,
                        build.Binary(HloOpcode::kMultiply, x, y));
  };
  for (size_t j = 0; j < a.size(); ++j) {
    HloInstruction* square = at(j, j);
    for (size_t k = 0; k < j; ++k) square = less(square, at(j, k), at(j, k));
    // As LAPACK, for which not-a-number is no failure.
    failure.Add(build.Compare(ComparisonDirection::kLe, square, zero),
                static_cast<int64_t>(j));
    at(j, j) = build.Unary(HloOpcode::kSqrt, square);
    for (size_t i = j + 1; i < a.size(); ++i) {
      HloInstruction* value = at(i, j);
      for (size_t k = 0; k < j; ++k) value = less(value, at(i, k), at(j, k));
      at(i, j) = build.Binary(HloOpcode::kDivide, value, at(j, j));
    }
  }
  return Results{Flat(a), {failure.first()}};
}

// Step `k` of Gaussian elimination on `a`; returns the row that was swapped
// with row k, from 1 on, and whether the pivot is zero.
std::pair<HloInstruction*, HloInstruction*> Eliminate(size_t k, Elements& a,
                                                      Elementwise& build) {
  const size_t size = a.size();
  const auto number = [&](size_t row) {
    return build.Constant(static_cast<int32_t>(row + 1));
  };
  HloInstruction* largest = build.Unary(HloOpcode::kAbs, a[k][k]);
  HloInstruction* pivot = number(k);
  for (size_t i = k + 1; i < size; ++i) {
    HloInstruction* value = build.Unary(HloOpcode::kAbs, a[i][k]);
    HloInstruction* is_larger =
        build.Compare(ComparisonDirection::kGt, value, largest);
    largest = build.Where(is_larger, value, largest);
    pivot = build.Where(is_larger, number(i), pivot);
  }
  for (size_t i = k + 1; i < size; ++i) {
    HloInstruction* is_pivot =
        build.Compare(ComparisonDirection::kEq, pivot, number(i));
    for (size_t j = 0; j < size; ++j) {
      HloInstruction* upper = build.Where(is_pivot, a[i][j], a[k][j]);
      a[i][j] = build.Where(is_pivot, a[k][j], a[i][j]);
      a[k][j] = upper;
    }
  }
  const xla::PrimitiveType type = a[k][k]->shape().element_type();
  const auto compared = [&](ComparisonDirection direction, HloInstruction* x,
                            double y) {
    return build.Compare(direction, x, build.Convert(build.Number(y), type));
  };
  HloInstruction* is_zero = compared(ComparisonDirection::kEq, a[k][k], 0);
  // As OpenBLAS, which does not divide by numbers below the smallest normal
  // one, nor by not-a-number.
  const double least = type == xla::F64 ? std::numeric_limits<double>::min()
                                        : std::numeric_limits<float>::min();
  HloInstruction* divides = compared(
      ComparisonDirection::kGe, build.Unary(HloOpcode::kAbs, a[k][k]), least);
  for (size_t i = k + 1; i < size; ++i) {
    HloInstruction* factor = build.Binary(HloOpcode::kDivide, a[i][k], a[k][k]);
    a[i][k] = build.Where(divides, factor, a[i][k]);
    for (size_t j = k + 1; j < size; ++j) {
      a[i][j] =
          build.Binary(HloOpcode::kSubtract, a[i][j],
                       build.Binary(HloOpcode::kMultiply, a[i][k], a[k][j]));
    }
  }
  return {pivot, is_zero};
}

// `Eliminate` in kernels of its own, which later steps do not compute again.
absl::StatusOr<std::pair<HloInstruction*, HloInstruction*>> EliminateApart(
    size_t k, Elements& a, Elementwise& build) {
  const size_t size = a.size();
  HLOENV_ASSIGN_OR_RETURN(
      HloInstruction * call, InOwnKernel(Flat(a), [&](Arrays in) {
        Elements inside(size);
        for (size_t i = 0; i < in.size(); ++i)
          inside[i / size].push_back(in[i]);
        Elementwise own(in[0]->parent(), in[0]->shape());
        const auto [pivot, is_zero] = Eliminate(k, inside, own);
        std::vector<HloInstruction*> parts = Flat(inside);
        parts.push_back(pivot);
        parts.push_back(is_zero);
        return in[0]->parent()->AddInstruction(
            HloInstruction::CreateTuple(parts));
      }));
  const auto part = [&](size_t index) {
    return build.Add(HloInstruction::CreateGetTupleElement(
        call, static_cast<int64_t>(index)));
  };
  for (size_t i = 0; i < size * size; ++i) a[i / size][i % size] = part(i);
  return std::pair(part(size * size), part(size * size + 1));
}

// Both factors in one matrix, the rows that were swapped at each step, from 1
// on, and the failure.
absl::StatusOr<Results> LuOf(Tiny& tiny, Arrays in) {
  Elementwise& build = tiny.build();
  Elements a = tiny.ElementsOf(in[0]);
  Failure failure(build);
  std::vector<HloInstruction*> pivots;
  for (size_t k = 0; k < a.size(); ++k) {
    auto found = std::pair<HloInstruction*, HloInstruction*>();
    if (static_cast<int64_t>(a.size()) <= kMaxFusedLu) {
      found = Eliminate(k, a, build);
    } else {
      HLOENV_ASSIGN_OR_RETURN(found, EliminateApart(k, a, build));
    }
    pivots.push_back(found.first);
    failure.Add(found.second, static_cast<int64_t>(k));
  }
  return Results{Flat(a), pivots, {failure.first()}};
}

// --- Calls of LAPACK --------------------------------------------------------

// Whether it is a call of a LAPACK function, as jax makes it, of floats.
bool Calls(const HloInstruction& call, absl::string_view name) {
  if (call.opcode() != HloOpcode::kCustomCall || call.operand_count() == 0 ||
      !call.operand(0)->shape().IsArray()) {
    return false;
  }
  const xla::PrimitiveType type = call.operand(0)->shape().element_type();
  if (type != xla::F32 && type != xla::F64) return false;
  return call.custom_call_target() ==
         absl::StrCat("lapack_", type == xla::F32 ? "s" : "d", name, "_ffi");
}

// A parameter of such a call, one of some letters; nothing if there is none.
std::optional<char> LetterOf(const HloInstruction& call, absl::string_view name,
                             absl::string_view letters) {
  const std::string& config = call.raw_backend_config_string();
  for (const char letter : letters) {
    const int code = letter;
    if (absl::StrContains(config, absl::StrCat(name, " = ", code, " :"))) {
      return letter;
    }
  }
  return std::nullopt;
}

std::vector<int64_t> BatchOf(const xla::Shape& matrices) {
  return {matrices.dimensions().begin(), matrices.dimensions().end() - 2};
}

// Whether arrays of matrices are of few rows and known size.
bool IsTiny(const xla::Shape& shape, int64_t max_rows) {
  return shape.IsArray() && shape.is_static() &&
         shape.dimensions().size() >= 2 &&
         !xla::ShapeUtil::IsZeroElementArray(shape) &&
         Tiny::RowsOf(shape) <= max_rows && Tiny::ColumnsOf(shape) <= max_rows;
}

bool IsTinySquare(const xla::Shape& shape, int64_t max_rows) {
  return IsTiny(shape, max_rows) &&
         Tiny::RowsOf(shape) == Tiny::ColumnsOf(shape);
}

void ProposeTriangular(const HloInstruction& root, RuleContext&,
                       std::vector<Proposal>& proposals) {
  if (!Calls(root, "trsm") || !IsReplaceable(root) ||
      root.operand_count() != 2) {
    return;
  }
  const xla::Shape& matrices = root.operand(0)->shape();
  const xla::Shape& shape = root.operand(1)->shape();
  if (!IsTinySquare(matrices, kMaxSolved) || !IsTiny(shape, kMaxSolutions) ||
      Tiny::RowsOf(shape) * Tiny::ColumnsOf(shape) > kMaxSolutions ||
      matrices.element_type() != shape.element_type() ||
      BatchOf(matrices) != BatchOf(shape) ||
      !xla::ShapeUtil::Compatible(root.shape(), shape)) {
    return;
  }
  const std::optional<char> side = LetterOf(root, "side", "LR");
  const std::optional<char> triangle = LetterOf(root, "uplo", "LU");
  const std::optional<char> transposed = LetterOf(root, "trans_x", "NTC");
  const std::optional<char> diagonal = LetterOf(root, "diag", "UN");
  if (!side || !triangle || !transposed || !diagonal) return;
  const Solve solve = {*side == 'L', *triangle == 'L', *transposed != 'N',
                       *diagonal == 'U'};
  if (Tiny::RowsOf(matrices) !=
      (solve.is_left ? Tiny::RowsOf(shape) : Tiny::ColumnsOf(shape))) {
    return;
  }
  Propose(
      TriangularRule(), root, {root.operand(0), root.operand(1)},
      [solve, &root](Arrays x) -> absl::StatusOr<HloInstruction*> {
        HLOENV_ASSIGN_OR_RETURN(
            std::vector<HloInstruction*> results,
            Apart(x, {root.shape()}, [&](Tiny& tiny, Arrays in) {
              return Solved(solve, tiny, in);
            }));
        return results[0];
      },
      proposals);
}

// Whether the result of a call is factors, pivots, if it has some, and
// failures.
bool GivesFactors(const HloInstruction& call, bool has_pivots) {
  const xla::Shape& matrices = call.operand(0)->shape();
  std::vector<int64_t> sizes = BatchOf(matrices);
  std::vector<xla::Shape> shapes = {matrices,
                                    xla::ShapeUtil::MakeShape(xla::S32, sizes)};
  if (has_pivots) {
    sizes.push_back(Tiny::RowsOf(matrices));
    shapes.insert(shapes.begin() + 1,
                  xla::ShapeUtil::MakeShape(xla::S32, sizes));
  }
  return xla::ShapeUtil::Compatible(call.shape(),
                                    xla::ShapeUtil::MakeTupleShape(shapes));
}

// Proposes to replace the used elements of a call's result.
void ProposeFactors(const Rule& rule, const HloInstruction& last,
                    RuleContext& context, absl::string_view name,
                    int64_t max_rows, bool has_pivots,
                    const ResultsOf& function,
                    std::vector<Proposal>& proposals) {
  if (last.opcode() != HloOpcode::kGetTupleElement) return;
  const HloInstruction& call = *last.operand(0);
  if (!Calls(call, name) || call.operand_count() != 1 ||
      !IsTinySquare(call.operand(0)->shape(), max_rows) ||
      !GivesFactors(call, has_pivots) || call.HasControlDependencies() ||
      call.has_sharding()) {
    return;
  }
  std::vector<const HloInstruction*> originals = LiveElementsOf(call, context);
  if (originals.empty() || originals.back() != &last) return;
  for (const HloInstruction* each : originals) {
    if (each->opcode() != HloOpcode::kGetTupleElement ||
        !IsReplaceable(*each)) {
      return;
    }
  }
  ProposeMany(
      rule, originals, {call.operand(0)},
      [originals, &call,
       function](Arrays x) -> absl::StatusOr<std::vector<HloInstruction*>> {
        const std::vector<xla::Shape>& shapes = call.shape().tuple_shapes();
        HLOENV_ASSIGN_OR_RETURN(std::vector<HloInstruction*> all,
                                Apart(x, shapes, function));
        std::vector<HloInstruction*> results;
        for (const HloInstruction* each : originals) {
          results.push_back(all[each->tuple_index()]);
        }
        return results;
      },
      proposals);
}

}  // namespace

const Rule& TriangularRule() {
  static constexpr Rule rule = {
      "triangular",
      "Rewrites solutions of many triangular systems of up to 8 rows, for each "
      "of which jax calls LAPACK, as arithmetic over all of them. Floats round "
      "differently.",
      &ProposeTriangular};
  return rule;
}
const Rule& CholeskyRule() {
  static constexpr Rule rule = {
      "cholesky",
      "Rewrites the Cholesky factors of many matrices of up to 6 rows, for "
      "each of which jax calls LAPACK, as arithmetic over all of them. Floats "
      "round differently.",
      [](const HloInstruction& last, RuleContext& context,
         std::vector<Proposal>& proposals) {
        if (last.opcode() != HloOpcode::kGetTupleElement) return;
        const std::optional<char> triangle =
            LetterOf(*last.operand(0), "uplo", "LU");
        if (!triangle) return;
        const bool is_lower = *triangle == 'L';
        ProposeFactors(
            CholeskyRule(), last, context, "potrf", kMaxCholesky,
            /*has_pivots=*/false,
            [is_lower](Tiny& tiny, Arrays in) {
              return CholeskyOf(is_lower, tiny, in);
            },
            proposals);
      }};
  return rule;
}
const Rule& LuRule() {
  static constexpr Rule rule = {
      "lu",
      "Rewrites the factors of many matrices of up to 6 rows by Gaussian "
      "elimination with pivots, for each of which jax calls LAPACK, as "
      "arithmetic over all of them. Floats round differently; of a matrix with "
      "infinities other elements may be not-a-number.",
      [](const HloInstruction& last, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeFactors(LuRule(), last, context, "getrf", kMaxLu,
                       /*has_pivots=*/true, &LuOf, proposals);
      }};
  return rule;
}

}  // namespace hloenv
