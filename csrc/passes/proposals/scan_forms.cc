// SPDX-License-Identifier: Apache-2.0
// Proposes loops for cumulative reductions (jnp.cumsum), which JAX writes as
// reductions over windows of the whole dimension, and of which XLA makes blocks
// of 16 elements, each reduced anew for each element:
//
//   y = f32[1000,50] reduce-window(x: f32[1000,50], 0),
//         window={size=1000x1 pad=999_0x0_0}, add
//
// becomes
//
//   sum = broadcast(0)
//   for i in 0..1000: sum = sum + x[i,:]; y[i,:] = sum
//
// The backend makes one kernel of a loop that accesses few bytes in each
// iteration. Iterations therefore take several elements of a dimension where
// these are few bytes, and one loop runs for each group of rows where many rows
// are scanned.
#include <algorithm>

#include "passes/proposals/counted_loop.h"
#include "passes/proposals/cumulative.h"
#include "passes/proposals/labelled.h"
#include "passes/proposals/reduce_rules.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Bytes of the elements of one iteration up to which jaxlib 0.10 made one
// kernel of a loop.
constexpr int64_t kKernelBytes = 128;
// Elements of the dimension in one iteration: limit, and those of long rows.
constexpr int64_t kMaxUnrolled = 8;
constexpr int64_t kUnrolledRows = 4;
// Terms from which floats are added up, or multiplied, as float64: roundings of
// so many float32 are less than those of the blocks that XLA makes, and, of
// numbers of 16 bits, than the last bit of these.
constexpr int64_t kLongSum = 256, kLongNarrowSum = 4096;
// Rows of a group.
constexpr int64_t kGroup = 8;

// The type of the sums. XLA reduces long dimensions block by block, so that
// fewer roundings add up than from one element to the next.
xla::PrimitiveType SumType(const Cumulative& scan, xla::PrimitiveType type) {
  const xla::PrimitiveType wide = AccumulationType(type);
  const bool rounds = !scan.operation.has_value() ||
                      scan.operation == HloOpcode::kAdd ||
                      scan.operation == HloOpcode::kMultiply;
  const int64_t long_sum = wide == type ? kLongSum : kLongNarrowSum;
  if (!rounds || scan.size < long_sum) return wide;
  if (wide == xla::F32) return xla::F64;
  return wide == xla::C64 ? xla::C128 : wide;
}

// Builds the loops of one cumulative reduction, on arrays of which the second
// dimension is scanned. They have a third one only if it has several elements:
// jaxlib 0.10 took twice as long with one of size 1.
class ScanBuilder {
 public:
  ScanBuilder(const Cumulative& scan, const HloInstruction& root)
      : scan_(scan),
        root_(root),
        type_(AccumulationType(root.shape().element_type())),
        wide_(SumType(scan, root.shape().element_type())) {
    // XLA makes kernels of loops over numbers of 32 bits, not of 16.
    if (type_ != root.shape().element_type()) {
      scan_.element_bytes = xla::primitive_util::ByteWidth(type_);
    }
  }

  HloInstruction* Build(HloInstruction* x) {
    HloInstruction* viewed = Viewed(x);
    return Shaped(Scanned(viewed, UnrolledOf(scan_.outer)));
  }

  // One loop for each group of rows. The last group overlaps the one before, as
  // slices stay inside their array.
  HloInstruction* BuildGroups(HloInstruction* x) {
    HloInstruction* viewed = Viewed(x);
    const auto trips =
        static_cast<int32_t>((scan_.outer + kGroup - 1) / kGroup);
    const std::vector<HloInstruction*> results = CountedLoop(
        trips, {Initial(viewed, viewed->shape()), viewed},
        [this](HloInstruction* index, absl::Span<HloInstruction* const> state) {
          HloInstruction* start =
              WithInteger(HloOpcode::kMultiply, index, kGroup);
          HloInstruction* rows = DynamicSliceAlong(state[1], 0, start, kGroup);
          return std::vector<HloInstruction*>{
              DynamicUpdateAlong(state[0], 0, start,
                                 Scanned(rows, UnrolledOf(kGroup))),
              state[1]};
        });
    return Shaped(results[0]);
  }

 private:
  using Sizes = std::vector<int64_t>;

  // Elements of the dimension in one iteration over this many rows.
  int64_t UnrolledOf(int64_t rows) const {
    const int64_t bytes = rows * scan_.inner * scan_.element_bytes;
    int64_t unrolled = kUnrolledRows;
    if (bytes <= kKernelBytes) {
      unrolled = kKernelBytes / bytes;
    } else if (scan_.inner == 1) {
      unrolled = kMaxUnrolled;
    }
    return std::min({unrolled, kMaxUnrolled, scan_.size});
  }

  static HloInstruction* Add(HloInstruction* beside,
                             std::unique_ptr<HloInstruction> instruction) {
    return beside->parent()->AddInstruction(std::move(instruction));
  }

  Sizes SizesOf(int64_t outer, int64_t size) const {
    if (scan_.inner == 1) return {outer, size};
    return {outer, size, scan_.inner};
  }
  HloInstruction* Viewed(HloInstruction* x) const {
    HloInstruction* viewed =
        Add(x, HloInstruction::CreateReshape(
                   xla::ShapeUtil::MakeShape(root_.shape().element_type(),
                                             SizesOf(scan_.outer, scan_.size)),
                   x));
    return Converted({viewed, ""}, type_).value;
  }
  HloInstruction* Shaped(HloInstruction* result) const {
    result = Converted({result, ""}, root_.shape().element_type()).value;
    return Add(result, HloInstruction::CreateReshape(root_.shape(), result));
  }
  // The initial number, as an array of this shape.
  HloInstruction* Initial(HloInstruction* beside,
                          const xla::Shape& shape) const {
    HloInstruction* number = Add(
        beside,
        HloInstruction::CreateConstant(root_.operand(1)->literal().Clone()));
    number = Converted({number, ""}, shape.element_type()).value;
    // XLA takes `0 + x` for `x`, which is another sum of negative zeros.
    const bool is_sum = scan_.operation == HloOpcode::kAdd &&
                        !xla::ShapeUtil::ElementIsIntegral(shape);
    if (is_sum) number = BarrierOf(number);
    return Add(beside, HloInstruction::CreateBroadcast(shape, number, {}));
  }
  // The reducer, elementwise.
  HloInstruction* Combined(HloInstruction* sum, HloInstruction* row) const {
    row = Converted({row, ""}, wide_).value;
    if (scan_.operation.has_value()) {
      return Add(sum, HloInstruction::CreateBinary(sum->shape(),
                                                   *scan_.operation, sum, row));
    }
    absl::flat_hash_map<const HloInstruction*, HloInstruction*> images;
    for (const HloInstruction* each :
         root_.to_apply()->MakeInstructionPostOrder()) {
      const xla::PrimitiveType own = each->shape().element_type();
      const xla::Shape shape = xla::ShapeUtil::ChangeElementType(
          sum->shape(), own == type_ ? wide_ : own);
      std::vector<HloInstruction*> operands;
      for (const HloInstruction* operand : each->operands()) {
        operands.push_back(images.at(operand));
      }
      if (each->opcode() == HloOpcode::kParameter) {
        images[each] = each->parameter_number() == 0 ? sum : row;
      } else if (each->opcode() == HloOpcode::kConstant) {
        const Labelled number = {Add(sum, each->Clone()), ""};
        images[each] = Add(
            sum, HloInstruction::CreateBroadcast(
                     shape, Converted(number, shape.element_type()).value, {}));
      } else {
        images[each] = Add(sum, each->CloneWithNewOperands(shape, operands));
      }
    }
    return images.at(root_.to_apply()->root_instruction());
  }
  // Arrays after each other in the scanned dimension; those of a scan from the
  // end in reverse order.
  HloInstruction* Joined(std::vector<HloInstruction*> parts) const {
    if (scan_.is_reversed) std::reverse(parts.begin(), parts.end());
    if (parts.size() == 1) return parts.front();
    xla::Shape shape = parts.front()->shape();
    int64_t size = 0;
    for (const HloInstruction* part : parts)
      size += part->shape().dimensions(1);
    shape.set_dimensions(1, size);
    return Add(parts.front(),
               HloInstruction::CreateConcatenate(shape, parts, 1));
  }

  // Adds the next elements to `sum` and returns the sums.
  std::vector<HloInstruction*> Sums(
      HloInstruction*& sum, int64_t count,
      const std::function<HloInstruction*(int64_t)>& element) const {
    std::vector<HloInstruction*> sums;
    for (int64_t k = 0; k < count; ++k) {
      sum = Combined(sum, element(k));
      sums.push_back(Converted({sum, ""}, type_).value);
    }
    return sums;
  }

  // One loop over the scanned dimension, after the elements that do not fill an
  // iteration.
  HloInstruction* Scanned(HloInstruction* x, int64_t unrolled) const {
    const Sizes row = SizesOf(x->shape().dimensions(0), 1);
    HloInstruction* sum = Initial(x, xla::ShapeUtil::MakeShape(wide_, row));
    const int64_t head = scan_.size % unrolled;
    std::vector<HloInstruction*> parts =
        Sums(sum, head, [&](int64_t k) { return SliceOf(x, k); });
    xla::Shape rest = x->shape();
    rest.set_dimensions(1, scan_.size - head);
    parts.push_back(Initial(x, rest));
    const auto trips = static_cast<int32_t>(scan_.size / unrolled);
    return CountedLoop(
        trips, {sum, Joined(parts), x},
        [&](HloInstruction* index, absl::Span<HloInstruction* const> state) {
          const auto start_of = [&](int64_t k) {
            return StartOf(index, unrolled, head + k);
          };
          HloInstruction* next = state[0];
          HloInstruction* sums = Joined(Sums(next, unrolled, [&](int64_t k) {
            return DynamicSliceAlong(state[2], 1, start_of(k), 1);
          }));
          return std::vector<HloInstruction*>{
              next,
              DynamicUpdateAlong(state[1], 1,
                                 start_of(scan_.is_reversed ? unrolled - 1 : 0),
                                 sums),
              state[2]};
        })[1];
  }
  // Where the element at index * unrolled + offset of the scan is.
  HloInstruction* StartOf(HloInstruction* index, int64_t unrolled,
                          int64_t offset) const {
    HloInstruction* at = WithInteger(HloOpcode::kMultiply, index,
                                     scan_.is_reversed ? -unrolled : unrolled);
    return WithInteger(HloOpcode::kAdd, at,
                       scan_.is_reversed ? scan_.size - 1 - offset : offset);
  }
  // The element at this index of the scan, which starts at the end if reversed.
  HloInstruction* SliceOf(HloInstruction* x, int64_t offset) const {
    const int64_t at = scan_.is_reversed ? scan_.size - 1 - offset : offset;
    const std::string labels = scan_.inner == 1 ? "os" : "osi";
    return Sliced({x, labels}, {{'s', at, 1}}).value;
  }

  Cumulative scan_;
  const HloInstruction& root_;
  const xla::PrimitiveType type_;  // of the arrays
  const xla::PrimitiveType wide_;  // of the sums
};

void ProposeScan(const HloInstruction& root, RuleContext& context,
                 std::vector<Proposal>& proposals) {
  const std::optional<Cumulative> scan = CumulativeOf(root, context);
  if (!scan.has_value()) return;
  Propose(
      ScanRule(), root, {root.operand(0)},
      [scan = *scan, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return ScanBuilder(scan, root).Build(x[0]);
      },
      proposals);
}

void ProposeScanGroups(const HloInstruction& root, RuleContext& context,
                       std::vector<Proposal>& proposals) {
  const std::optional<Cumulative> scan = CumulativeOf(root, context);
  if (!scan.has_value() || scan->outer <= kGroup) return;
  Propose(
      ScanGroupsRule(), root, {root.operand(0)},
      [scan = *scan, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        return ScanBuilder(scan, root).BuildGroups(x[0]);
      },
      proposals);
}

}  // namespace

const Rule& ScanRule() {
  static constexpr Rule rule = {
      "scan",
      "Rewrites a cumulative reduction (a reduction over windows of all "
      "elements up to each, or from each on) as a loop over its dimension. "
      "Floats may round differently; dimensions of 256 elements and more are "
      "reduced in a wider type, which does not overflow on the way.",
      &ProposeScan};
  return rule;
}

const Rule& ScanGroupsRule() {
  static constexpr Rule rule = {
      "scan_groups",
      "Rewrites a cumulative reduction of more than 8 rows as a loop over its "
      "dimension for each group of 8 rows. Floats may round differently.",
      &ProposeScanGroups};
  return rule;
}

}  // namespace hloenv
