// SPDX-License-Identifier: Apache-2.0
// Proposes networks of minimum and maximum for sorts of few elements each:
// XLA's CPU backend sorts one row after the other, by calls of a comparator.
//
//   s = f32[8000,9] sort(x), dimensions={1}
//
// becomes, with the rows' first elements a, their second ones b, and so on,
//
//   a' = minimum(key(a), key(b)),  b' = maximum(key(a), key(b)),  ...
//
// of which LLVM makes vectors over all rows. Where equal numbers can be told
// apart, such as zeros by their signs, a key has the index in its lower bits.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/number_keys.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/sort_rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Elements of each sort up to which there are networks, if some results are
// read and if all are: XLA's fusion computes the network again for each, and
// LLVM takes seconds for more.
constexpr int64_t kMaxWires = 32;
constexpr int64_t kMaxWiresOfWhole = 16;

// Pairs that Batcher's merge of odd and even elements compares, in order.
std::vector<std::pair<int64_t, int64_t>> PairsOf(int64_t wires) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t run = 1; run < wires; run *= 2) {
    for (int64_t step = run; step >= 1; step /= 2) {
      for (int64_t first = step % run; first + step < wires;
           first += 2 * step) {
        const int64_t end = std::min(step, wires - first - step);
        for (int64_t low = first; low < first + end; ++low) {
          if (low / (2 * run) == (low + step) / (2 * run)) {
            pairs.emplace_back(low, low + step);
          }
        }
      }
    }
  }
  return pairs;
}

// The elements at one index of a dimension, without it.
HloInstruction* SliceAt(HloInstruction* x, int64_t dimension, int64_t index) {
  xla::Shape shape = x->shape();
  std::vector<int64_t> starts(shape.dimensions().size(), 0);
  std::vector<int64_t> limits(shape.dimensions().begin(),
                              shape.dimensions().end());
  starts[dimension] = index;
  limits[dimension] = index + 1;
  shape.set_dimensions(dimension, 1);
  HloInstruction* slice =
      x->parent()->AddInstruction(HloInstruction::CreateSlice(
          shape, x, starts, limits, std::vector<int64_t>(starts.size(), 1)));
  return x->parent()->AddInstruction(HloInstruction::CreateReshape(
      xla::ShapeUtil::DeleteDimension(dimension, shape), slice));
}

bool IsFloat(const HloInstruction& x) {
  return xla::primitive_util::IsFloatingPointType(x.shape().element_type());
}

// The key, the index and, for a float, its sign, in one integer of 64 bits.
HloInstruction* Packed(HloInstruction* x, int64_t index, bool is_descending,
                       Elementwise& build) {
  HloInstruction* low = build.Constant<int64_t>(2 * index);
  HloInstruction* key = SortKeyOf(x, is_descending, build);
  if (IsFloat(*x)) {
    HloInstruction* bits = build.Bits(build.Convert(x, xla::F32), xla::S32);
    HloInstruction* sign = build.Binary(HloOpcode::kShiftRightLogical, bits,
                                        build.Constant<int32_t>(31));
    low = build.Binary(HloOpcode::kOr, build.Convert(sign, xla::S64), low);
  }
  return build.Binary(
      HloOpcode::kOr,
      build.Binary(HloOpcode::kShiftLeft, key, build.Constant<int64_t>(32)),
      low);
}

// The number in a packed one.
HloInstruction* NumberIn(HloInstruction* packed, xla::PrimitiveType type,
                         bool is_descending, Elementwise& build) {
  HloInstruction* wide = build.Binary(HloOpcode::kShiftRightArithmetic, packed,
                                      build.Constant<int64_t>(32));
  if (is_descending) wide = build.Not(wide);
  if (type == xla::U32) {
    wide = build.Binary(HloOpcode::kAdd, wide,
                        build.Constant<int64_t>(int64_t{1} << 31));
  }
  if (!xla::primitive_util::IsFloatingPointType(type)) {
    return build.Convert(wide, type);
  }
  HloInstruction* key = build.Convert(wide, xla::S32);
  HloInstruction* bits =
      build.Select(xla::ComparisonDirection::kLt, key,
                   build.Constant<int32_t>(0), build.Not(key), key);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  bits = build.Select(xla::ComparisonDirection::kEq, bits,
                      build.Constant<int32_t>(kMost),
                      build.Constant<int32_t>(0x7fc00000), bits);
  HloInstruction* sign =
      build.Binary(HloOpcode::kShiftLeft, build.Convert(packed, xla::S32),
                   build.Constant<int32_t>(31));
  bits = build.Binary(HloOpcode::kOr, bits, sign);
  return build.Convert(build.Bits(bits, xla::F32), type);
}

HloInstruction* IndexIn(HloInstruction* packed, Elementwise& build) {
  HloInstruction* low = build.Binary(HloOpcode::kAnd, packed,
                                     build.Constant<int64_t>(0xffffffff));
  return build.Convert(build.Binary(HloOpcode::kShiftRightLogical, low,
                                    build.Constant<int64_t>(1)),
                       xla::S32);
}

// Sorts the wires.
void Run(std::vector<HloInstruction*>& wires, bool is_descending,
         Elementwise& build) {
  for (auto [first, second] : PairsOf(static_cast<int64_t>(wires.size()))) {
    if (is_descending) std::swap(first, second);
    HloInstruction* least =
        build.Binary(HloOpcode::kMinimum, wires[first], wires[second]);
    wires[second] =
        build.Binary(HloOpcode::kMaximum, wires[first], wires[second]);
    wires[first] = least;
  }
}

// The wires as rows of an array.
HloInstruction* RowsOf(const std::vector<HloInstruction*>& wires) {
  xla::HloComputation* computation = wires[0]->parent();
  std::vector<int64_t> sizes = {1};
  for (const int64_t size : wires[0]->shape().dimensions()) {
    sizes.push_back(size);
  }
  const xla::PrimitiveType type = wires[0]->shape().element_type();
  const xla::Shape row = xla::ShapeUtil::MakeShape(type, sizes);
  std::vector<HloInstruction*> rows;
  for (HloInstruction* wire : wires) {
    rows.push_back(
        computation->AddInstruction(HloInstruction::CreateReshape(row, wire)));
  }
  sizes[0] = static_cast<int64_t>(wires.size());
  return computation->AddInstruction(HloInstruction::CreateConcatenate(
      xla::ShapeUtil::MakeShape(type, sizes), rows, 0));
}

// An array with its first dimension at another place.
HloInstruction* WithRowsAt(HloInstruction* rows, int64_t dimension) {
  if (dimension == 0) return rows;
  std::vector<int64_t> permutation(rows->shape().dimensions().size());
  absl::c_iota(permutation, 0);
  std::rotate(permutation.begin(), permutation.begin() + 1,
              permutation.begin() + dimension + 1);
  std::vector<int64_t> sizes;
  for (const int64_t d : permutation) {
    sizes.push_back(rows->shape().dimensions(d));
  }
  const xla::PrimitiveType type = rows->shape().element_type();
  return rows->parent()->AddInstruction(HloInstruction::CreateTranspose(
      xla::ShapeUtil::MakeShape(type, sizes), rows, permutation));
}

struct Network {
  KeyedSort sort;
  // Whether equal keys can be told apart.
  bool has_equal = false;
  // Whether what reads the results reads all of them. In a fusion with that,
  // XLA would make no vectors, or compute it again for each.
  bool is_read_whole = false;
};

// The sorted numbers, or their indices of 32 bits, one after the other.
std::vector<HloInstruction*> SortedBy(const Network& network, HloInstruction* x,
                                      bool is_index) {
  const xla::Shape& shape = x->shape();
  const int64_t dimension = network.sort.dimension;
  const bool is_descending = network.sort.is_descending;
  std::vector<HloInstruction*> wires;
  for (int64_t i = 0; i < shape.dimensions(dimension); ++i) {
    wires.push_back(SliceAt(x, dimension, i));
  }
  Elementwise build(x->parent(), wires[0]->shape());
  if (!network.has_equal) {
    Run(wires, is_descending, build);
    return wires;
  }
  for (size_t i = 0; i < wires.size(); ++i) {
    wires[i] = Packed(wires[i], static_cast<int64_t>(i), is_descending, build);
  }
  Run(wires, /*is_descending=*/false, build);
  for (HloInstruction*& wire : wires) {
    wire = is_index
               ? IndexIn(wire, build)
               : NumberIn(wire, shape.element_type(), is_descending, build);
  }
  return wires;
}

absl::StatusOr<std::vector<HloInstruction*>> BuildNetwork(
    const Network& network, absl::Span<HloInstruction* const> x) {
  const auto sorted = [&](bool is_index) -> absl::StatusOr<HloInstruction*> {
    std::vector<HloInstruction*> wires;
    if (network.is_read_whole) {
      HLOENV_ASSIGN_OR_RETURN(
          HloInstruction * call,
          InOwnKernel({x[0]}, [&](absl::Span<HloInstruction* const> in) {
            return in[0]->parent()->AddInstruction(HloInstruction::CreateTuple(
                SortedBy(network, in[0], is_index)));
          }));
      const int64_t count = x[0]->shape().dimensions(network.sort.dimension);
      for (int64_t i = 0; i < count; ++i) {
        wires.push_back(call->parent()->AddInstruction(
            HloInstruction::CreateGetTupleElement(call, i)));
      }
    } else {
      wires = SortedBy(network, x[0], is_index);
    }
    HloInstruction* rows = RowsOf(wires);
    return WithRowsAt(rows, network.sort.dimension);
  };
  const KeyedSort& sort = network.sort;
  HloInstruction* indices = nullptr;
  Elementwise build(x[0]->parent(), x[0]->shape());
  std::vector<HloInstruction*> results;
  for (size_t i = 0; i < sort.reads.size(); ++i) {
    const int64_t read = sort.reads[i];
    if (read >= 0 && x[read] == x[0]) {
      HLOENV_ASSIGN_OR_RETURN(HloInstruction * numbers,
                              sorted(/*is_index=*/false));
      results.push_back(numbers);
      continue;
    }
    if (indices == nullptr) {
      HLOENV_ASSIGN_OR_RETURN(indices, sorted(/*is_index=*/true));
    }
    results.push_back(read < 0 ? build.Convert(indices, sort.types[i])
                               : TakenAlong(x[read], indices, sort.dimension));
  }
  return results;
}

// Whether all that a sort gives are its keys, of which equal ones are the same.
bool IsOfIntegers(const FoundSort& found) {
  const HloInstruction* keys = found.reads[0];
  for (const int64_t read : found.sort.reads) {
    if (read < 0 || found.reads[read] != keys) return false;
  }
  return !IsFloat(*keys);
}

// Whether what reads a value reads at most half of its elements, also where a
// function that JAX calls, such as that of a sort, returns it or gets it.
bool IsReadInPart(const HloInstruction* value) {
  const int64_t size = xla::ShapeUtil::ElementsIn(value->shape());
  constexpr size_t kMaxValues = 32;
  std::vector<const HloInstruction*> values = {value};
  for (size_t i = 0; i < values.size(); ++i) {
    if (values.size() > kMaxValues) return false;
    if (values[i]->IsRoot()) {
      if (values[i]->parent()->IsEntryComputation()) return false;
      for (const HloInstruction* call :
           values[i]->parent()->caller_instructions()) {
        if (call->opcode() != HloOpcode::kCall) return false;
        values.push_back(call);
      }
    }
    for (const HloInstruction* user : values[i]->users()) {
      switch (user->opcode()) {
        case HloOpcode::kSlice:
        case HloOpcode::kDynamicSlice:
        case HloOpcode::kGather:
          if (2 * xla::ShapeUtil::ElementsIn(user->shape()) > size) {
            return false;
          }
          break;
        case HloOpcode::kReverse:
          values.push_back(user);
          break;
        case HloOpcode::kCall:
          for (const int64_t operand : user->OperandIndices(values[i])) {
            values.push_back(user->to_apply()->parameter_instruction(operand));
          }
          break;
        default:
          return false;
      }
    }
  }
  return true;
}

void ProposeNetwork(const HloInstruction& last, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  const HloInstruction* root = SortOf(last);
  if (root == nullptr) return;
  const xla::Shape& shape = root->operand(0)->shape();
  const int64_t wires = shape.dimensions(
      xla::Cast<xla::HloSortInstruction>(root)->sort_dimension());
  if (wires > kMaxWires) return;
  std::optional<FoundSort> found = FindSort(last, context);
  if (!found.has_value()) return;
  Network network;
  network.has_equal = !IsOfIntegers(*found);
  if (network.has_equal && HasWideKeys(shape.element_type())) return;
  network.is_read_whole = !absl::c_all_of(found->originals, &IsReadInPart);
  if (network.is_read_whole && wires > kMaxWiresOfWhole) return;
  network.sort = std::move(found->sort);
  ProposeMany(
      NetworkRule(), std::move(found->originals), std::move(found->reads),
      [network = std::move(network)](absl::Span<HloInstruction* const> x) {
        return BuildNetwork(network, x);
      },
      proposals);
}

}  // namespace

const Rule& NetworkRule() {
  static constexpr Rule rule = {
      "network",
      "Rewrites a sort of up to 16 elements each, or 32 if not all results are "
      "read, of numbers of up to 32 bits, or of integers alone, as minima and "
      "maxima of all first, second, and so "
      "on, elements. Exact, but tells numbers below the smallest normal one "
      "apart, which the backend takes for zeros, and keeps the signs of "
      "not-a-numbers but not their other bits.",
      &ProposeNetwork};
  return rule;
}

}  // namespace hloenv
