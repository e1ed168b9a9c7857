// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "hlo/config.h"
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

namespace xla::cpu {

// Its header includes YNNPACK's. Null where the wheel has no YNNPACK.
__attribute__((weak)) bool IsReduceOpOffloadedToYnn(const HloInstruction* hlo);

}  // namespace xla::cpu

namespace hloenv {

namespace {

// Workaround for an XLA bug: GatherSimplifier and ScatterSimplifier ignore
// batching dimensions and compute wrong shapes; the first returns an error, the
// second fails a CHECK. XLA's CPU compiler runs
// batched_gather_scatter_normalizer before them, which removes these
// dimensions.
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

PassPtr MakeTreeReductionRewriter(const Options& options) {
  const int64_t size = options.Int("reduce_window_size");
  const absl::StatusOr<xla::HloModuleConfig> config = DefaultModuleConfig();
  const bool leaves_some =
      !options.Bool("library_reductions") &&
      xla::cpu::IsReduceOpOffloadedToYnn != nullptr && config.ok() &&
      absl::c_linear_search(
          config->debug_options().xla_cpu_experimental_ynn_fusion_type(),
          xla::DebugOptions::LIBRARY_FUSION_TYPE_REDUCE);
  if (!leaves_some) return std::make_unique<xla::TreeReductionRewriter>(size);
  return std::make_unique<xla::TreeReductionRewriter>(
      size, [](const xla::HloInstruction* hlo) {
        return !xla::cpu::IsReduceOpOffloadedToYnn(hlo);
      });
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
       "Sorts the dimensions of broadcasts and transposes the result.",
       {},
       &Make<xla::BroadcastCanonicalizer>},
      {"call-inliner",
       "CallInliner",
       "Replaces calls with the bodies of the called computations.",
       {{"single_call_site", false,
         "Inline only computations that are called once, as XLA's CPU "
         "compiler does."},
        {"uniquify_channel_ids", false,
         "Give inlined collectives unique channel ids."},
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
         "\"aggressive\" folds everything that can be evaluated, including "
         "loops, with no time limit; XLA's CPU compiler uses \"default\".",
         {"default", "aggressive"}}},
       [](const Options& options) -> PassPtr {
         using Level = xla::HloConstantFolding::Level;
         return std::make_unique<xla::HloConstantFolding>(
             options.String("level") == "aggressive" ? Level::kAggressive
                                                     : Level::kDefault);
       }},
      ConvolutionFormsPass(),
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
      // HloDCE's third setting, which removes unused entry parameters, is not
      // an option here: it changes the module's signature.
      {"dce",
       "HloDCE",
       "Removes instructions and computations that no result depends on.",
       {{"remove_cross_partition_collective_ops", false,
         "Remove unused collectives across partitions too, which XLA keeps "
         "by default as side effects."},
        {"use_call_analysis", false,
         "Analyse calls, to remove unused outputs of called computations "
         "too."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::HloDCE>(
             options.Bool("remove_cross_partition_collective_ops"),
             options.Bool("use_call_analysis"));
       }},
      DotFormsPass(),
      {"dynamic-dimension-simplifier",
       "DynamicDimensionSimplifier",
       "Simplifies arithmetic on the sizes of dynamic dimensions.",
       {},
       &Make<xla::DynamicDimensionSimplifier>},
      {"flatten-call-graph",
       "FlattenCallGraph",
       "Gives every call and loop a computation of its own, as buffer "
       "analyses require.",
       {},
       &Make<xla::FlattenCallGraph>},
      FusionCutsPass(),
      GeneralSimplifyPass(),
      {"gather_simplifier",
       "GatherSimplifier",
       "Writes gathers as transposes, reshapes and a gather of one form. Keeps "
       "gathers with batching dimensions: run "
       "batched_gather_scatter_normalizer first.",
       {},
       &Make<UnbatchedGatherSimplifier>},
      {"map-inline",
       "MapInliner",
       "Writes maps of a single operation as that operation.",
       {},
       &Make<xla::MapInliner>},
      LoopFormsPass(),
      MathFormsPass(),
      MergeDotsPass(),
      ReassociatePass(),
      ReduceFormsPass(),
      {"reduce-window-resizer",
       "ReduceWindowResizer",
       "Gives one-dimensional reduce-windows a second dimension.",
       {},
       &Make<xla::ReduceWindowResizer>},
      {"reduce-window-rewriter",
       "ReduceWindowRewriter",
       "Writes cumulative reductions as trees of smaller ones. Its result may "
       "match again: run it to a fixed point, as XLA's CPU compiler does.",
       {{"base_length",
         int64_t{16},
         "The longest window that is not rewritten (XLA's CPU compiler uses "
         "the flag xla_reduce_window_rewrite_base_length, 16 by default).",
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
         "Treat reshapes of one-dimensional broadcasts as cheap and create "
         "them."}},
       [](const Options& options) -> PassPtr {
         xla::ReshapeMoverOptions result;
         result.reshape_of_1d_broadcast_is_cheap =
             options.Bool("reshape_of_1d_broadcast_is_cheap");
         return std::make_unique<xla::ReshapeMover>(result);
       }},
      {"scatter_simplifier",
       "ScatterSimplifier",
       "Writes scatters as transposes, reshapes and a scatter of one form. "
       "Keeps scatters with batching dimensions: run "
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
       "Shortens chains of conversions between float types, which removes "
       "intermediate rounding.",
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
         "Also replace comparisons in the body whose result follows from the "
         "trip count."}},
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
      SortFormsPass(),
      {"transpose-folding",
       "TransposeFolding",
       "Folds transposes into the dots and convolutions that read them.",
       {{"convolutions", false,
         "Fold into convolutions too; XLA's CPU compiler does not."},
        {"dots",
         "row-column",
         "\"row-column\" folds transposes of a matrix's rows and columns, as "
         "XLA's CPU compiler does; \"all\" folds every transpose of a dot's "
         "operand.",
         {"row-column", "all"}}},
       &MakeTransposeFolding},
      {"tree_reduction_rewriter",
       "TreeReductionRewriter",
       "Reduces windows first and then their results, which lowers the "
       "rounding error.",
       {{"library_reductions", false,
         "Reductions too that XLA's CPU compiler leaves to YNNPACK."},
        {"reduce_window_size",
         int64_t{32},
         "Number of elements in each window.",
         {},
         /*minimum=*/2}},
       &MakeTreeReductionRewriter},
      {"tuple-simplifier",
       "TupleSimplifier",
       "Removes get-tuple-elements of tuples, and tuples of all elements of a "
       "tuple.",
       {{"exclude_entry_computation", false,
         "Do not change the entry computation."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::TupleSimplifier>(
             options.Bool("exclude_entry_computation"));
       }},
      {"while-loop-constant-sinking",
       "WhileLoopConstantSinking",
       "Moves loop-invariant constants in a loop's state into its body.",
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
       "Moves loop-invariant instructions out of loops.",
       {{"hoist_constants", false,
         "Move constants alone, not only together with their users."},
        {"hoist_other", true,
         "Move instructions other than constants and reshapes."},
        {"hoist_reshapes", false,
         "Move reshapes alone, not only together with their users."},
        {"hoist_size_inflation_ratio", 0.0,
         "Do not move instructions whose output is more than this many times "
         "as large as their inputs; 0 sets no limit."}},
       &MakeInvariantCodeMotion},
      {"zero_sized_hlo_elimination",
       "ZeroSizedHloElimination",
       "Replaces zero-sized arrays with constants.",
       {},
       &Make<xla::ZeroSizedHloElimination>},
  };
}

}  // namespace hloenv
