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
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/number_keys.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/partial_reads.h"
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

// The key, the index and, for a float, its sign, in one integer of 64 bits, in
// which the number may be found again.
HloInstruction* Packed(HloInstruction* x, int64_t index, bool is_descending,
                       bool has_number, Elementwise& build) {
  HloInstruction* low = build.Constant<int64_t>(2 * index);
  HloInstruction* key = SortKeyOf(x, is_descending, build, has_number);
  if (IsFloat(x->shape())) {
    HloInstruction* sign =
        x->shape().element_type() == xla::F32
            ? build.Binary(HloOpcode::kShiftRightLogical,
                           build.Bits(x, xla::S32), build.Constant<int32_t>(31))
            : build.Binary(HloOpcode::kShiftRightLogical,
                           build.Bits(x, xla::S16),
                           build.Constant<int16_t>(15));
    low = build.Binary(HloOpcode::kOr, build.Convert(sign, xla::S64), low);
  }
  return build.Binary(
      HloOpcode::kOr,
      build.Binary(HloOpcode::kShiftLeft, key, build.Constant<int64_t>(32)),
      low);
}

// The float with a key, which is an integer of 64 bits here, and the sign that
// is the lowest bit of `packed`.
template <typename Bits>
HloInstruction* FloatOf(HloInstruction* key, HloInstruction* packed,
                        xla::PrimitiveType type, Bits nan, Elementwise& build) {
  const xla::PrimitiveType bits_type =
      xla::primitive_util::NativeToPrimitiveType<Bits>();
  key = build.Convert(key, bits_type);
  HloInstruction* bits =
      build.Select(xla::ComparisonDirection::kLt, key, build.Constant<Bits>(0),
                   build.Not(key), key);
  bits = build.Select(xla::ComparisonDirection::kEq, bits,
                      build.Constant<Bits>(std::numeric_limits<Bits>::max()),
                      build.Constant<Bits>(nan), bits);
  HloInstruction* sign =
      build.Binary(HloOpcode::kShiftLeft, build.Convert(packed, bits_type),
                   build.Constant<Bits>(std::numeric_limits<Bits>::digits));
  return build.Bits(build.Binary(HloOpcode::kOr, bits, sign), type);
}

// The number in a packed one.
HloInstruction* NumberOfPacked(HloInstruction* packed, xla::PrimitiveType type,
                               bool is_descending, Elementwise& build) {
  HloInstruction* wide = build.Binary(HloOpcode::kShiftRightArithmetic, packed,
                                      build.Constant<int64_t>(32));
  if (is_descending) wide = build.Not(wide);
  if (type == xla::U32) {
    wide = build.Binary(HloOpcode::kAdd, wide,
                        build.Constant<int64_t>(int64_t{1} << 31));
  }
  switch (type) {
    case xla::F32:
      return FloatOf<int32_t>(wide, packed, type, 0x7fc00000, build);
    case xla::BF16:
      return FloatOf<int16_t>(wide, packed, type, 0x7fc0, build);
    case xla::F16:
      return FloatOf<int16_t>(wide, packed, type, 0x7e00, build);
    default:
      return build.Convert(wide, type);
  }
}

HloInstruction* IndexOfPacked(HloInstruction* packed, Elementwise& build) {
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

struct Network {
  KeyedSort sort;
  // Whether equal keys can be told apart.
  bool has_equal = false;
  // Whether what reads the results reads all of them. In a fusion with that,
  // XLA would make no vectors, or compute it again for each.
  bool is_read_whole = false;
};

// What is read of a sort.
struct Wanted {
  bool numbers = false;
  bool indices = false;
};

// The sorted numbers, and then their indices of 32 bits, one after the other.
std::vector<HloInstruction*> SortedBy(const Network& network, Wanted wanted,
                                      HloInstruction* x) {
  const xla::Shape& shape = x->shape();
  const bool is_descending = network.sort.is_descending;
  const Labelled all = {x, LabelsOf(RankOf(shape))};
  const char label = all.labels[network.sort.dimension];
  std::vector<HloInstruction*> wires;
  for (int64_t i = 0; i < all.SizeOf(label); ++i) {
    wires.push_back(
        WithoutUnits(Sliced(all, {{label, i, 1}}), {&label, 1}).value);
  }
  Elementwise build(x->parent(), wires[0]->shape());
  if (!network.has_equal) {
    Run(wires, is_descending, build);
    return wires;
  }
  for (size_t i = 0; i < wires.size(); ++i) {
    wires[i] = Packed(wires[i], static_cast<int64_t>(i), is_descending,
                      wanted.numbers, build);
  }
  Run(wires, /*is_descending=*/false, build);
  std::vector<HloInstruction*> results;
  if (wanted.numbers) {
    for (HloInstruction* wire : wires) {
      results.push_back(
          NumberOfPacked(wire, shape.element_type(), is_descending, build));
    }
  }
  if (wanted.indices) {
    for (HloInstruction* wire : wires)
      results.push_back(IndexOfPacked(wire, build));
  }
  return results;
}

absl::StatusOr<std::vector<HloInstruction*>> BuildNetwork(
    const Network& network, absl::Span<HloInstruction* const> x) {
  const KeyedSort& sort = network.sort;
  const auto is_number = [&](int64_t read) {
    return read >= 0 && x[read] == x[0];
  };
  Wanted wanted;
  for (const int64_t read : sort.reads) {
    (is_number(read) ? wanted.numbers : wanted.indices) = true;
  }
  const auto sorted = [&](absl::Span<HloInstruction* const> in) {
    return SortedBy(network, wanted, in[0]);
  };
  std::vector<HloInstruction*> wires;
  if (network.is_read_whole) {
    HLOENV_ASSIGN_OR_RETURN(wires, AllInOwnKernels({x[0]}, sorted));
  } else {
    wires = sorted(x);
  }
  const std::string labels = LabelsOf(RankOf(x[0]->shape()));
  const char label = labels[sort.dimension];
  std::string others = labels;
  others.erase(sort.dimension, 1);
  // The numbers or indices, whichever come first.
  const auto taken = [&] {
    const int64_t count = x[0]->shape().dimensions(sort.dimension);
    std::vector<Labelled> first;
    for (int64_t i = 0; i < count; ++i) first.push_back({wires[i], others});
    wires.erase(wires.begin(), wires.begin() + count);
    return Stacked(first, label, labels).value;
  };
  HloInstruction* numbers = wanted.numbers ? taken() : nullptr;
  HloInstruction* indices = wanted.indices ? taken() : nullptr;
  Elementwise build(x[0]->parent(), x[0]->shape());
  std::vector<HloInstruction*> results;
  for (size_t i = 0; i < sort.reads.size(); ++i) {
    const int64_t read = sort.reads[i];
    if (is_number(read)) {
      results.push_back(numbers);
    } else if (read < 0) {
      results.push_back(build.Convert(indices, sort.types[i]));
    } else {
      results.push_back(TakenAlong(x[read], indices, sort.dimension));
    }
  }
  return results;
}

// Whether all that a sort gives are its keys, of which equal ones are the same.
bool IsOfIntegers(const FoundSort& found) {
  const HloInstruction* keys = found.reads[0];
  for (const int64_t read : found.sort.reads) {
    if (read < 0 || found.reads[read] != keys) return false;
  }
  return !IsFloat(keys->shape());
}

void ProposeNetwork(const HloInstruction& last, RuleContext& context,
                    std::vector<Proposal>& proposals) {
  const HloInstruction* root = SortOf(last);
  if (root == nullptr) return;
  const xla::Shape& shape = root->operand(0)->shape();
  const int64_t wires = shape.dimensions(
      xla::Cast<xla::HloSortInstruction>(root)->sort_dimension());
  if (wires > kMaxWires || RankOf(shape) > kMaxLabels) return;
  std::optional<FoundSort> found = FindSort(last, context);
  if (!found.has_value()) return;
  Network network;
  network.has_equal = !IsOfIntegers(*found);
  if (network.has_equal && HasWideKeys(shape.element_type())) return;
  network.is_read_whole =
      !absl::c_all_of(found->originals, [&](const HloInstruction* each) {
        return IsReadInPart(*each, found->sort.dimension, context);
      });
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
      "Rewrites a sort of up to 16 elements each, or 32 if at most half of the "
      "results are read, of numbers of up to 32 bits, or of integers alone, as "
      "minima and maxima of all first, second, and so on, elements. Exact; a "
      "sort that need not be stable becomes so. Where numbers are read, it "
      "tells "
      "those below the smallest normal one apart, which the backend takes for "
      "zeros, and keeps the signs of not-a-numbers but not their other bits.",
      &ProposeNetwork};
  return rule;
}

}  // namespace hloenv
