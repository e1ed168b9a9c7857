// SPDX-License-Identifier: Apache-2.0
#include "passes/catalog/catalog.h"
#include "passes/proposals/general_passes.h"
#include "xla/hlo/transforms/simplifiers/batch_dot_simplification.h"
#include "xla/hlo/transforms/simplifiers/broadcast_canonicalizer.h"
#include "xla/hlo/transforms/simplifiers/conditional_canonicalizer.h"
#include "xla/hlo/transforms/simplifiers/dynamic_dimension_simplifier.h"
#include "xla/hlo/transforms/simplifiers/flatten_call_graph.h"
#include "xla/hlo/transforms/simplifiers/gather_simplifier.h"
#include "xla/hlo/transforms/simplifiers/hlo_constant_folding.h"
#include "xla/hlo/transforms/simplifiers/hlo_dce.h"
#include "xla/hlo/transforms/simplifiers/reduce_window_resizer.h"
#include "xla/hlo/transforms/simplifiers/reduce_window_rewriter.h"
#include "xla/hlo/transforms/simplifiers/reshape_mover.h"
#include "xla/hlo/transforms/simplifiers/simplify_fp_conversions.h"
#include "xla/hlo/transforms/simplifiers/slice_sinker.h"
#include "xla/hlo/transforms/simplifiers/sort_simplifier.h"
#include "xla/hlo/transforms/simplifiers/tree_reduction_rewriter.h"
#include "xla/hlo/transforms/simplifiers/tuple_simplifier.h"
#include "xla/hlo/transforms/simplifiers/zero_sized_hlo_elimination.h"
#include "xla/service/call_inliner.h"
#include "xla/service/conditional_simplifier.h"
#include "xla/service/conditional_to_select.h"
#include "xla/service/hlo_cse.h"
#include "xla/service/map_inliner.h"
#include "xla/service/scatter_simplifier.h"
#include "xla/service/transpose_folding.h"
#include "xla/service/while_loop_constant_sinking.h"
#include "xla/service/while_loop_invariant_code_motion.h"
#include "xla/service/while_loop_simplifier.h"

namespace hloenv {

namespace {

// XLA's own two classes do not look at batching dimensions and build wrong
// shapes from them: the gather's fails, the scatter's dies on a CHECK. XLA's
// CPU compiler never shows them any, because batched_gather_scatter_normalizer
// runs first.
class UnbatchedGatherSimplifier : public xla::GatherSimplifier {
 protected:
  bool InstructionMatchesPattern(xla::HloInstruction* instruction) override {
    return xla::GatherSimplifier::InstructionMatchesPattern(instruction) &&
           instruction->gather_dimension_numbers()
               .operand_batching_dims()
               .empty();
  }
};

class UnbatchedScatterSimplifier : public xla::ScatterSimplifier {
 protected:
  bool InstructionMatchesPattern(xla::HloInstruction* instruction) override {
    return xla::ScatterSimplifier::InstructionMatchesPattern(instruction) &&
           instruction->scatter_dimension_numbers()
               .input_batching_dims()
               .empty();
  }
};

PassPtr MakeInvariantCodeMotion(const Options& options) {
  std::optional<float> ratio;
  if (options.Float("hoist_size_inflation_ratio") > 0) {
    ratio = options.Float("hoist_size_inflation_ratio");
  }
  return std::make_unique<xla::WhileLoopInvariantCodeMotion>(
      options.Bool("hoist_constants"), options.Bool("hoist_reshapes"),
      options.Bool("hoist_other"), ratio);
}

PassPtr MakeTransposeFolding(const Options& options) {
  const bool all_dots = options.String("dots") == "all";
  return std::make_unique<xla::TransposeFolding>(
      [all_dots](const xla::HloInstruction& dot,
                 int64_t operand) -> absl::StatusOr<bool> {
        if (all_dots) return true;
        return xla::TransposeFolding::IsRowColumnTransposeDotOperand(dot,
                                                                     operand);
      },
      options.Bool("convolutions") ? xla::TransposeFolding::AlwaysFoldTranspose
                                   : xla::TransposeFolding::NeverFoldTranspose);
}

}  // namespace

std::vector<PassInfo> SimplifierPasses() {
  return {
      AlgebraicSimplifierPass(),
      {"batch-dot-simplification",
       "BatchDotSimplification",
       "Removes batch dimensions of size one from dots.",
       {},
       &Make<xla::BatchDotSimplification>},
      {"broadcast_canonicalizer",
       "BroadcastCanonicalizer",
       "Sorts the dimensions of broadcasts and transposes afterwards.",
       {},
       &Make<xla::BroadcastCanonicalizer>},
      {"call-inliner",
       "CallInliner",
       "Puts the bodies of called computations in place of the calls.",
       {{"single_call_site", false,
         "Inline only computations that are called once, as XLA's CPU "
         "compiler does."},
        {"uniquify_channel_ids", false,
         "Give inlined collectives channels of their own."},
        {"update_domain", false,
         "Update the exit domains of calls that are inlined."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::CallInliner>(
             options.Bool("single_call_site"), options.Bool("update_domain"),
             /*composites_to_preserve=*/absl::flat_hash_set<std::string>{},
             options.Bool("uniquify_channel_ids"));
       }},
      {"conditional-canonicalizer",
       "ConditionalCanonicalizer",
       "Gives every conditional a tuple as its result.",
       {},
       &Make<xla::ConditionalCanonicalizer>},
      {"conditional-to-select",
       "ConditionalToSelect",
       "Writes conditionals inside maps as selects.",
       {},
       &Make<xla::ConditionalToSelect>},
      {"constant_folding",
       "HloConstantFolding",
       "Evaluates instructions whose operands are constants.",
       {{"level",
         "default",
         "\"aggressive\" folds whatever can be evaluated, loops included, "
         "however long that takes; XLA's CPU compiler uses \"default\".",
         {"default", "aggressive"}}},
       [](const Options& options) -> PassPtr {
         using Level = xla::HloConstantFolding::Level;
         return std::make_unique<xla::HloConstantFolding>(
             options.String("level") == "aggressive" ? Level::kAggressive
                                                     : Level::kDefault);
       }},
      {"cse",
       "HloCSE",
       "Merges equal constants and equal instructions with equal operands.",
       {{"ignore_control_dependencies", false,
         "Merge instructions that have control dependencies too."},
        {"is_layout_sensitive", false,
         "Merge only instructions with equal layouts; set it once layouts "
         "have been assigned."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::HloCSE>(
             options.Bool("is_layout_sensitive"),
             options.Bool("ignore_control_dependencies"));
       }},
      // Its third setting, which drops unused entry parameters, is left out: it
      // changes what a caller of the module passes in.
      {"dce",
       "HloDCE",
       "Removes instructions and computations that no result depends on.",
       {{"remove_cross_partition_collective_ops", false,
         "Remove unused collectives across partitions too, which XLA keeps "
         "by default as side effects."},
        {"use_call_analysis", false,
         "Look through calls, so that unused outputs of called computations "
         "go too."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::HloDCE>(
             options.Bool("remove_cross_partition_collective_ops"),
             options.Bool("use_call_analysis"));
       }},
      {"dynamic-dimension-simplifier",
       "DynamicDimensionSimplifier",
       "Simplifies arithmetic on the sizes of dynamic dimensions.",
       {},
       &Make<xla::DynamicDimensionSimplifier>},
      {"flatten-call-graph",
       "FlattenCallGraph",
       "Gives every call and loop a computation of its own, which analyses of "
       "buffers need.",
       {},
       &Make<xla::FlattenCallGraph>},
      GeneralSimplifyPass(),
      {"gather_simplifier",
       "GatherSimplifier",
       "Writes gathers as transposes, reshapes and a gather of one form. Those "
       "with batching dimensions stay: run batched_gather_scatter_normalizer "
       "first.",
       {},
       &Make<UnbatchedGatherSimplifier>},
      {"map-inline",
       "MapInliner",
       "Writes maps of a single operation as that operation.",
       {},
       &Make<xla::MapInliner>},
      MergeDotsPass(),
      ReassociatePass(),
      {"reduce-window-resizer",
       "ReduceWindowResizer",
       "Gives one-dimensional reduce-windows a second dimension.",
       {},
       &Make<xla::ReduceWindowResizer>},
      {"reduce-window-rewriter",
       "ReduceWindowRewriter",
       "Writes cumulative reductions as trees of smaller ones. Its own result "
       "may match again: run it to a fixed point, as XLA's CPU compiler does.",
       {{"base_length",
         int64_t{16},
         "The longest window that stays as it is (XLA's CPU compiler uses the "
         "flag xla_reduce_window_rewrite_base_length, 16 by default).",
         {},
         /*minimum=*/2}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::ReduceWindowRewriter>(
             options.Int("base_length"));
       }},
      {"reshape-mover",
       "ReshapeMover",
       "Moves reshapes and transposes behind the elementwise operations that "
       "read them.",
       {{"reshape_of_1d_broadcast_is_cheap", false,
         "Also make new reshapes of broadcasts of one dimension."}},
       [](const Options& options) -> PassPtr {
         xla::ReshapeMoverOptions result;
         result.reshape_of_1d_broadcast_is_cheap =
             options.Bool("reshape_of_1d_broadcast_is_cheap");
         return std::make_unique<xla::ReshapeMover>(result);
       }},
      {"scatter_simplifier",
       "ScatterSimplifier",
       "Writes scatters as transposes, reshapes and a scatter of one form. "
       "Those with batching dimensions stay: run "
       "batched_gather_scatter_normalizer first.",
       {},
       &Make<UnbatchedScatterSimplifier>},
      {"simplify-conditional",
       "ConditionalSimplifier",
       "Replaces conditionals whose predicate is constant, and those whose "
       "branches are cheap, and removes unused results.",
       {},
       &Make<xla::ConditionalSimplifier>},
      {"simplify-fp-conversions",
       "SimplifyFPConversions",
       "Shortens chains of conversions between float types; intermediate "
       "rounding goes.",
       {},
       &Make<xla::SimplifyFPConversions>},
      {"simplify-sorts",
       "SortSimplifier",
       "Drops operands of sorts whose sorted values are not used.",
       {},
       &Make<xla::SortSimplifier>},
      {"simplify-while-loops",
       "WhileLoopSimplifier",
       "Removes loops that run never or once, unused loop state and nested "
       "tuples of loop state.",
       {{"simplify_compare_instrs", false,
         "Also replace comparisons in the body that the trip count decides."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::WhileLoopSimplifier>(
             options.Bool("simplify_compare_instrs"));
       }},
      {"slice-sinker",
       "SliceSinker",
       "Merges equal elementwise operations on slices of the same arrays and "
       "slices their result.",
       {},
       &Make<xla::SliceSinker>},
      {"transpose-folding",
       "TransposeFolding",
       "Folds transposes into the dots and convolutions that read them.",
       {{"convolutions", false,
         "Fold into convolutions too, which XLA's CPU compiler does not."},
        {"dots",
         "row-column",
         "\"row-column\" folds what one matrix product reads, as XLA's CPU "
         "compiler does; \"all\" folds every transpose of a dot's operand.",
         {"row-column", "all"}}},
       &MakeTransposeFolding},
      {"tree_reduction_rewriter",
       "TreeReductionRewriter",
       "Reduces windows first and their results then, which rounds less.",
       {{"reduce_window_size",
         int64_t{32},
         "Elements that each window reduces.",
         {},
         /*minimum=*/2}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::TreeReductionRewriter>(
             options.Int("reduce_window_size"));
       }},
      {"tuple-simplifier",
       "TupleSimplifier",
       "Removes tuples that are taken apart again, and the other way round.",
       {{"exclude_entry_computation", false,
         "Leave the entry computation as it is."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::TupleSimplifier>(
             options.Bool("exclude_entry_computation"));
       }},
      {"while-loop-constant-sinking",
       "WhileLoopConstantSinking",
       "Puts constants that a loop only carries along into its body.",
       {{"sink_broadcast_of_constants", false,
         "Sink broadcasts of constants too."},
        {"sink_only_scalar_constants", false, "Sink scalars only."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::WhileLoopConstantSinking>(
             options.Bool("sink_broadcast_of_constants"),
             options.Bool("sink_only_scalar_constants"));
       }},
      {"while-loop-invariant-code-motion",
       "WhileLoopInvariantCodeMotion",
       "Moves what does not change from one iteration to the next out of "
       "loops.",
       {{"hoist_constants", false,
         "Move constants for their own sake, not only along with others."},
        {"hoist_other", true, "Move anything but constants and reshapes."},
        {"hoist_reshapes", false,
         "Move reshapes for their own sake, not only along with others."},
        {"hoist_size_inflation_ratio", 0.0,
         "Move nothing whose output is more than this many times as large as "
         "its inputs; 0 sets no limit."}},
       &MakeInvariantCodeMotion},
      {"zero_sized_hlo_elimination",
       "ZeroSizedHloElimination",
       "Replaces arrays without elements by constants.",
       {},
       &Make<xla::ZeroSizedHloElimination>},
  };
}

}  // namespace hloenv
