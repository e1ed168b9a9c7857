// SPDX-License-Identifier: Apache-2.0
// Calls of LAPACK for each of many tiny matrices, as jax makes them, as
// arithmetic over all of them. For example
//
//   x = f32[1000,2,1] custom-call(a, b), target="lapack_strsm_ffi", lower
//
// becomes, with all first elements of the matrices a11, and so on,
//
//   x1 = b1 / a11,  x2 = (b2 - a21 * x1) / a22
//
// of which LLVM makes vectors over the matrices.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "passes/proposals/math_rules.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/tiny_linalg.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Rows of matrices, and elements of solutions, up to which arithmetic was
// faster: XLA's fusion computes what several results need for each of them.
constexpr int64_t kMaxSolved = 8, kMaxSolutions = 36;
constexpr int64_t kMaxCholesky = 6, kMaxLu = 6;

using ResultsOf = std::function<absl::StatusOr<Results>(Tiny&, Arrays)>;

// The results of a function of matrices, as arrays of `shapes`. Not in one
// kernel with what reads them: XLA would make no vectors.
absl::StatusOr<std::vector<HloInstruction*>> Apart(
    Arrays operands, const std::vector<xla::Shape>& shapes,
    const ResultsOf& function) {
  std::vector<size_t> sizes;
  const auto body =
      [&](Arrays in) -> absl::StatusOr<std::vector<HloInstruction*>> {
    Tiny tiny(in[0]->parent(), in[0]->shape());
    HLOENV_ASSIGN_OR_RETURN(const Results all, function(tiny, in));
    for (const auto& each : all) sizes.push_back(each.size());
    return Flat(all);
  };
  HLOENV_ASSIGN_OR_RETURN(const std::vector<HloInstruction*> all,
                          AllInOwnKernels(operands, body));
  Tiny tiny(operands[0]->parent(), operands[0]->shape());
  std::vector<HloInstruction*> results;
  auto part = all.begin();
  for (size_t i = 0; i < shapes.size(); part += sizes[i++]) {
    results.push_back(tiny.Joined({part, part + sizes[i]}, shapes[i]));
  }
  return results;
}

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
