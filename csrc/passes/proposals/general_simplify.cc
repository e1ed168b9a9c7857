// SPDX-License-Identifier: Apache-2.0
// What XLA's simplifiers can do and do not do by default.
#include "hlo/layouts.h"
#include "passes/proposals/general_passes.h"

namespace hloenv {
namespace {

using Set = std::vector<std::pair<std::string, OptionValue>>;

// Right for all values, though XLA's authors or a cost check leave them off.
// Without use_associative_reordering, which fails a CHECK on most dots
// (`reassociate` has the products that it is about), and without
// enable_scalar_multiply_reduction, which XLA gets wrong where what it takes
// the factor out of has other users, or is one branch of a select.
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

// Differ for NaN, infinities and zeros of either sign.
std::vector<Set> Unsafe() {
  return {{{"enable_floats_are_real", true}},
          {{"enable_fast_math", true}},
          {{"minmax_propagate_nan", false}}};
}

std::vector<PassSpec> UnionOf(const Options& options,
                              const xla::HloModule& module) {
  const bool keeps_layouts =
      options.Bool("layout_sensitive") || DependsOnLayouts(module);
  std::vector<PassSpec> passes = {{"algsimp", {}}};
  std::vector<Set> sets = Optional();
  if (options.Bool("unsafe")) {
    for (Set& set : Unsafe()) sets.push_back(std::move(set));
  }
  for (Set& set : sets) {
    if (keeps_layouts) {
      set.push_back({"is_layout_sensitive", true});
    }
    passes.push_back({"algsimp", std::move(set)});
  }
  if (keeps_layouts) {
    passes.front().options.push_back({"is_layout_sensitive", true});
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
      "Proposes what XLA's simplifiers do by default and, as choices beside "
      "it, what each of their optional rewrites does, those included that XLA "
      "guards by an estimate of cost. Floats may round differently.";
  pass.options = {
      {"layout_sensitive", false,
       "Keep every layout; set it once layouts have been assigned. Where "
       "bitcasts depend on them they are kept in any case."},
      {"unsafe", false,
       "Also rewrites that give other results for NaN, infinities or zeros of "
       "either sign."}};
  pass.make = nullptr;
  pass.union_of = &UnionOf;
  return pass;
}

}  // namespace hloenv
