// SPDX-License-Identifier: Apache-2.0
// Proposes reductions without dimensions of size 1 for those of computed arrays
// whose last dimension is such a one, as of losses of [batch, 1]: jaxlib's
// library, which has the computation in the reduction, takes a row at a time.
//
// Before:  s = f32[] reduce(abs(x - y: f32[1000,1]), 0), dimensions={0,1}, add
// After:   s = f32[] reduce(abs(x' - y': f32[1000]), 0), dimensions={0}, add,
//          where x' and y' are without the dimension
//
// In a computation of its own: XLA would reshape what is computed.
#include <vector>

#include "absl/algorithm/container.h"
#include "passes/proposals/computed_terms.h"
#include "passes/proposals/own_kernel.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/two_reductions.h"
#include "support/status.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Of each dimension its place without those of size 1, which have none.
Sizes PlacesOf(const xla::Shape& shape) {
  Sizes places;
  int64_t next = 0;
  for (const int64_t size : shape.dimensions()) {
    places.push_back(size == 1 ? -1 : next++);
  }
  return places;
}

Sizes SizesOf(const xla::Shape& shape) {
  Sizes sizes;
  absl::c_copy_if(shape.dimensions(), std::back_inserter(sizes),
                  [](int64_t size) { return size != 1; });
  return sizes;
}

// A broadcast of numbers, without dimensions of size 1 of both.
absl::StatusOr<HloInstruction*> BroadcastSqueezed(
    const HloInstruction& broadcast, HloInstruction* numbers) {
  const Sizes places = PlacesOf(broadcast.shape());
  Sizes dimensions;
  for (const int64_t d : broadcast.dimensions()) {
    if (places[d] >= 0) dimensions.push_back(places[d]);
  }
  return xla::MakeBroadcastHlo(numbers, dimensions, SizesOf(broadcast.shape()));
}

void ProposeSqueezed(const HloInstruction& root, RuleContext& context,
                     std::vector<Proposal>& proposals) {
  if (root.opcode() != HloOpcode::kReduce || root.operand_count() != 2) return;
  const xla::Shape& shape = root.operand(0)->shape();
  const int64_t rank = RankOf(shape);
  if (rank < 2 || shape.dimensions(rank - 1) != 1 ||
      xla::ShapeUtil::ElementsIn(shape) <= 1) {
    return;
  }
  const std::optional<Reduced> reduced = ReducedOf(root, context);
  if (!reduced.has_value()) return;
  ComputedTerms terms(*root.operand(0),
                      [](const HloInstruction&) { return true; });
  // Others of a value may be compared with the largest of them.
  if (!terms.is_computed() ||
      (reduced->operation != HloOpcode::kAdd && !terms.is_read_once())) {
    return;
  }
  const size_t initial = terms.Place(*root.operand(1));
  const auto body = [terms, initial, &root, operation = reduced->operation](
                        absl::Span<HloInstruction* const> parameters)
      -> absl::StatusOr<HloInstruction*> {
    const xla::Shape& shape = root.operand(0)->shape();
    HLOENV_ASSIGN_OR_RETURN(
        HloInstruction * values,
        terms.Build(SizesOf(shape), parameters, &BroadcastSqueezed));
    const Sizes places = PlacesOf(shape);
    Sizes dimensions;
    for (const int64_t d : root.dimensions()) {
      if (places[d] >= 0) dimensions.push_back(places[d]);
    }
    return xla::MakeReduceHlo(values, parameters[initial], dimensions,
                              operation);
  };
  Propose(
      SqueezedRule(), root, terms.leaves(),
      [body, &root](absl::Span<HloInstruction* const> x)
          -> absl::StatusOr<HloInstruction*> {
        std::vector<HloInstruction*> arrays;
        for (HloInstruction* each : x) {
          HLOENV_ASSIGN_OR_RETURN(
              arrays.emplace_back(),
              xla::MakeReshapeHlo(SizesOf(each->shape()), each));
        }
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * result,
                                InOwnKernel(arrays, body));
        return xla::MakeReshapeHlo(root.shape(), result);
      },
      proposals);
}

}  // namespace

const Rule& SqueezedRule() {
  static constexpr Rule rule = {
      "squeezed",
      "Rewrites a reduction, by one operation, of a computed array whose last "
      "dimension has size 1 as one of an array without such dimensions, in a "
      "call that XLA does not inline. Floats may round differently.",
      &ProposeSqueezed};
  return rule;
}

}  // namespace hloenv
