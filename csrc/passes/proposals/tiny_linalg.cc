// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/tiny_linalg.h"

#include <limits>
#include <utility>

#include "passes/proposals/labelled.h"
#include "passes/proposals/own_kernel.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::ComparisonDirection;
using xla::HloInstruction;
using xla::HloOpcode;

namespace {
// Rows up to which all steps of an elimination may be in one kernel.
constexpr int64_t kMaxFusedLu = 3;
}  // namespace

Tiny::Tiny(xla::HloComputation* computation, const xla::Shape& matrices)
    : count_(xla::ShapeUtil::ElementsIn(matrices) / RowsOf(matrices) /
             ColumnsOf(matrices)),
      build_(computation,
             xla::ShapeUtil::MakeShape(matrices.element_type(), {count_})) {}

Elements Tiny::ElementsOf(HloInstruction* x) {
  const int64_t rows = RowsOf(x->shape());
  const int64_t columns = ColumnsOf(x->shape());
  const Labelled all = {build_.Add(HloInstruction::CreateReshape(
                            xla::ShapeUtil::MakeShape(x->shape().element_type(),
                                                      {count_, rows, columns}),
                            x)),
                        "mij"};
  Elements elements(rows);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const Labelled one = Sliced(all, {{'i', i, 1}, {'j', j, 1}});
      elements[i].push_back(WithoutUnits(one, "ij").value);
    }
  }
  return elements;
}

HloInstruction* Tiny::Joined(const std::vector<HloInstruction*>& parts,
                             const xla::Shape& shape) {
  std::vector<Labelled> all;
  for (HloInstruction* part : parts) all.push_back({part, "m"});
  HloInstruction* whole = Stacked(all, 'e', "me").value;
  return build_.Add(HloInstruction::CreateReshape(
      xla::ShapeUtil::MakeShape(whole->shape().element_type(),
                                shape.dimensions()),
      whole));
}

std::vector<HloInstruction*> Flat(const Results& results) {
  std::vector<HloInstruction*> all;
  for (const auto& each : results) {
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

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

namespace {

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

}  // namespace

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

namespace {

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
    size_t k, Elements& a) {
  const size_t size = a.size();
  HLOENV_ASSIGN_OR_RETURN(const std::vector<HloInstruction*> results,
                          AllInOwnKernels(Flat(a), [&](Arrays in) {
                            Elements inside(size);
                            for (size_t i = 0; i < in.size(); ++i) {
                              inside[i / size].push_back(in[i]);
                            }
                            Elementwise own(in[0]->parent(), in[0]->shape());
                            const auto [pivot, is_zero] =
                                Eliminate(k, inside, own);
                            std::vector<HloInstruction*> all = Flat(inside);
                            all.push_back(pivot);
                            all.push_back(is_zero);
                            return all;
                          }));
  for (size_t i = 0; i < size * size; ++i) a[i / size][i % size] = results[i];
  return std::pair(results[size * size], results[size * size + 1]);
}

}  // namespace

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
      HLOENV_ASSIGN_OR_RETURN(found, EliminateApart(k, a));
    }
    pivots.push_back(found.first);
    failure.Add(found.second, static_cast<int64_t>(k));
  }
  return Results{Flat(a), pivots, {failure.first()}};
}

}  // namespace hloenv
