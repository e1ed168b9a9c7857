// SPDX-License-Identifier: Apache-2.0
// Proposes the optional rewrites of XLA's simplifiers.
#include <algorithm>
#include <vector>

#include "hlo/layouts.h"
#include "passes/proposals/general_passes.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {
namespace {

using Set = std::vector<std::pair<std::string, OptionValue>>;

// Options that are correct for all values, but off by default or guarded by a
// cost estimate. Excludes use_associative_reordering, which fails a CHECK on
// most dots (`reassociate` proposes these rewrites), and
// enable_scalar_multiply_reduction, which has an XLA bug: results are wrong if
// the value that it takes the factor from has other users or is a branch of a
// select.
std::vector<Set> Optional() {
  return {
      {{"enable_conditional_simplification", true}},
      {{"enable_conv_add_multiply_reorder", true}},
      {{"enable_dot_strength_reduction", true}},
      {{"enable_move_dot_param_to_rhs", true}},
      {{"enable_remove_no_op_reduce_precision", true}},
      {{"raise_slice_and_reduce_through_dot", true},
       {"raise_slice_and_reduce_through_dot_threshold", 0.0}},
      {{"unconditionally_simplify_reduce_of_transpose_or_reshape", true}},
      {{"use_convert_constant_folding", true}},
      {{"very_small_gather_size", int64_t{64}}},
  };
}

// Options whose results differ for NaN, infinities and signed zeros.
std::vector<Set> Unsafe() {
  return {{{"enable_floats_are_real", true}},
          {{"enable_fast_math", true}},
          {{"minmax_propagate_nan", false}}};
}

// XLA reduces the operands of a dot in their type, with the reducer and the
// initial value of the result's: no valid module where these differ.
bool HasDotOfOtherTypes(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* each : computation->instructions()) {
      if (each->opcode() != xla::HloOpcode::kDot) continue;
      for (int64_t i = 0; i < 2; ++i) {
        if (each->operand(i)->shape().element_type() !=
            each->shape().element_type()) {
          return true;
        }
      }
    }
  }
  return false;
}

std::vector<PassSpec> UnionOf(const Options& options,
                              const xla::HloModule& module) {
  const bool keeps_layouts =
      options.Bool("layout_sensitive") || DependsOnLayouts(module);
  // The backend has no code for bitcasts of floats in comparators, and XLA
  // makes them only behind fusion.
  const Set kept = {{"is_layout_sensitive", true},
                    {"rewrite_no_op_bitcast_convert_to_bitcast", false}};
  std::vector<PassSpec> passes = {{"algsimp", {}}};
  std::vector<Set> sets = Optional();
  if (HasDotOfOtherTypes(module)) {
    const auto raises = [](const Set& set) {
      return set.front().first == "raise_slice_and_reduce_through_dot";
    };
    sets.erase(std::remove_if(sets.begin(), sets.end(), raises), sets.end());
  }
  if (options.Bool("unsafe")) {
    for (Set& set : Unsafe()) sets.push_back(std::move(set));
  }
  for (Set& set : sets) {
    if (keeps_layouts) set.insert(set.end(), kept.begin(), kept.end());
    passes.push_back({"algsimp", std::move(set)});
  }
  if (keeps_layouts) {
    passes.front().options = kept;
    return passes;
  }
  passes.push_back(
      {"reshape-mover", {{"reshape_of_1d_broadcast_is_cheap", true}}});
  passes.push_back({"slice-sinker", {}});
  passes.push_back({"batch-dot-simplification", {}});
  return passes;
}

}  // namespace

PassInfo GeneralSimplifyPass() {
  PassInfo pass;
  pass.name = "general-simplify";
  pass.class_name = "hloenv::GeneralSimplify";
  pass.summary =
      "Proposes the default rewrites of XLA's simplifiers and, as further "
      "choices, each of their optional rewrites, including those that XLA "
      "guards with a cost estimate. Floats may round differently.";
  pass.options = {
      {"layout_sensitive", false,
       "Keep every layout; set it once layouts have been assigned. Layouts "
       "that bitcasts depend on are always kept."},
      {"unsafe", false,
       "Also propose rewrites that change results for NaN, infinities or "
       "signed zeros."}};
  pass.make = nullptr;
  pass.union_of = &UnionOf;
  return pass;
}

}  // namespace hloenv
