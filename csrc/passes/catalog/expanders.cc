// SPDX-License-Identifier: Apache-2.0
#include "passes/catalog/catalog.h"
#include "xla/hlo/transforms/expanders/bitcast_dtypes_expander.h"
#include "xla/hlo/transforms/expanders/cholesky_expander.h"
#include "xla/hlo/transforms/expanders/comparison_expander.h"
#include "xla/hlo/transforms/expanders/dot_decomposer.h"
#include "xla/hlo/transforms/expanders/dynamic_index_splitter.h"
#include "xla/hlo/transforms/expanders/eigh_expander.h"
#include "xla/hlo/transforms/expanders/logistic_expander.h"
#include "xla/hlo/transforms/expanders/optimization_barrier_expander.h"
#include "xla/hlo/transforms/expanders/qr_expander.h"
#include "xla/hlo/transforms/expanders/reduce_decomposer.h"
#include "xla/hlo/transforms/expanders/reshape_decomposer.h"
#include "xla/hlo/transforms/expanders/rng_bit_generator_expander.h"
#include "xla/hlo/transforms/expanders/rng_expander.h"
#include "xla/hlo/transforms/expanders/stochastic_convert_decomposer.h"
#include "xla/hlo/transforms/operand_upcaster.h"
#include "xla/hlo/transforms/simplifiers/convolution_group_converter.h"
#include "xla/hlo/transforms/simplifiers/float_normalization.h"
#include "xla/hlo/transforms/simplifiers/result_caster.h"
#include "xla/service/all_reduce_promotion.h"
#include "xla/service/all_to_all_decomposer.h"
#include "xla/service/batched_gather_scatter_normalizer.h"
#include "xla/service/batchnorm_expander.h"
#include "xla/service/change_op_data_type.h"
#include "xla/service/gather_expander.h"
#include "xla/service/scatter_expander.h"
#include "xla/service/select_and_scatter_expander.h"
#include "xla/service/topk_rewriter.h"
#include "xla/service/triangular_solve_expander.h"

namespace hloenv {

namespace {

// Workaround for an XLA bug: RngBitGeneratorExpander fails a CHECK where the
// result holds only the bits and not the next state.
class StatefulRngExpander : public xla::RngBitGeneratorExpander {
 public:
  using xla::RngBitGeneratorExpander::RngBitGeneratorExpander;

 protected:
  bool InstructionMatchesPattern(xla::HloInstruction* instruction) override {
    return xla::RngBitGeneratorExpander::InstructionMatchesPattern(
               instruction) &&
           instruction->shape().IsTuple();
  }
};

PassPtr MakeConvolutionGroupConverter(const Options& options) {
  const bool all_types = options.Bool("all_types");
  const bool batch_groups = options.String("groups") == "batch";
  return std::make_unique<xla::ConvolutionGroupConverter>(
      [=](xla::HloInstruction* convolution) {
        const xla::PrimitiveType type = convolution->shape().element_type();
        return batch_groups || all_types ||
               (type != xla::F16 && type != xla::F32);
      },
      [](xla::HloInstruction*) { return false; },
      /*convert_batch_groups_only=*/batch_groups,
      options.Bool("filter_expansion"));
}

PassPtr MakeChangeOpDataType(const Options& options) {
  const bool from_f16 = options.String("from_type") == "f16";
  return std::make_unique<xla::ChangeOpDataType>(
      from_f16 ? xla::F16 : xla::BF16, xla::F32,
      xla::HloPredicateIsOp<xla::HloOpcode::kDot,
                            xla::HloOpcode::kConvolution>);
}

PassPtr MakeComparisonExpander(const Options& options) {
  std::vector<std::pair<xla::PrimitiveType, xla::PrimitiveType>> upcasts;
  if (options.Bool("expand_bf16_via_f32")) {
    upcasts.push_back({xla::BF16, xla::F32});
  }
  return std::make_unique<xla::ComparisonExpander>(upcasts);
}

PassPtr MakeScatterExpander(const Options& options) {
  const std::string& mode = options.String("mode");
  return std::make_unique<xla::ScatterExpander>(
      mode == "all" ? xla::ScatterExpander::kEliminateAllScatters
      : mode == "simple"
          ? xla::ScatterExpander::kEliminateSimpleScatters
          : xla::ScatterExpander::kEliminateIndeterministicScatters);
}

}  // namespace

std::vector<PassInfo> ExpanderPasses() {
  return {
      {"all-reduce-promotion",
       "AllReducePromotion",
       "Runs all-reduces of bf16 in f32, as XLA's CPU compiler does.",
       {},
       [](const Options&) -> PassPtr {
         const std::pair<xla::PrimitiveType, xla::PrimitiveType> types[] = {
             {xla::BF16, xla::F32}};
         return std::make_unique<xla::AllReducePromotion>(types);
       }},
      {"all_to_all_decomposer",
       "AllToAllDecomposer",
       "Writes all-to-alls of one array as all-to-alls of tuples.",
       {{"decompose_to_tuple", true,
         "Make tuples; otherwise make the split dimension as long as a replica "
         "group."},
        {"min_array_rank",
         int64_t{0},
         "With decompose_to_tuple off, arrays of at least this rank are not "
         "changed.",
         {},
         /*minimum=*/0}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::AllToAllDecomposer>(
             options.Bool("decompose_to_tuple"), options.Int("min_array_rank"));
       }},
      {"batched_gather_scatter_normalizer",
       "BatchedGatherScatterNormalizer",
       "Removes batch dimensions from gathers and scatters.",
       {},
       &Make<xla::BatchedGatherScatterNormalizer>},
      {"batchnorm_expander",
       "BatchNormExpander",
       "Writes batch normalisation as arithmetic. Defaults are those of XLA's "
       "CPU compiler.",
       {{"rewrite_grad_op", true, "Write out batch-norm-grad."},
        {"rewrite_inference_op", true, "Write out batch-norm-inference."},
        {"rewrite_training_op", true, "Write out batch-norm-training."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::BatchNormExpander>(
             options.Bool("rewrite_training_op"),
             options.Bool("rewrite_inference_op"),
             options.Bool("rewrite_grad_op"));
       }},
      {"bf16-mixed-precision-removal",
       "BFloat16MixedPrecisionRemoval",
       "Converts between f32 and bf16 where an instruction mixes them.",
       {},
       &Make<xla::BFloat16MixedPrecisionRemoval>},
      {"bitcast_dtypes_expander",
       "BitcastDtypesExpander",
       "Writes bitcast-converts between types of different widths as shifts "
       "and reductions.",
       {},
       &Make<xla::BitcastDtypesExpander>},
      {"change-op-data-type",
       "ChangeOpDataType",
       "Runs dots and convolutions of a narrow float type in f32.",
       {{"from_type",
         "f16",
         "The narrow type; XLA's CPU compiler does this for \"f16\".",
         {"f16", "bf16"}}},
       &MakeChangeOpDataType},
      {"cholesky_expander",
       "CholeskyExpander",
       "Writes Cholesky decompositions as loops of simpler operations.",
       {},
       &Make<xla::CholeskyExpander>},
      {"comparison-expander",
       "ComparisonExpander",
       "Writes total-order comparisons of floats as comparisons of integers.",
       {{"expand_bf16_via_f32", false,
         "Compare bf16 as f32, which XLA's CPU compiler does not."}},
       &MakeComparisonExpander},
      {"convolution-group-converter",
       "ConvolutionGroupConverter",
       "Writes grouped convolutions without groups. XLA's CPU compiler runs it "
       "once for batch groups and once for feature groups.",
       {{"all_types", false,
         "Convert feature groups of f16 and f32 too, which the CPU backend "
         "supports directly."},
        {"filter_expansion", true,
         "Expand the filter with zeros where groups have several features."},
        {"groups", "batch", "Which groups to convert.", {"batch", "feature"}}},
       &MakeConvolutionGroupConverter},
      {"cse_barrier_expander",
       "OptimizationBarrierExpander",
       "Removes optimization barriers.",
       {},
       &Make<xla::OptimizationBarrierExpander>},
      {"dot_decomposer",
       "DotDecomposer",
       "Writes dots in one form: batch dimensions first, then one free and "
       "one contracting dimension.",
       {},
       &Make<xla::DotDecomposer>},
      {"dynamic-index-splitter",
       "DynamicIndexSplitter",
       "Splits the index array of dynamic slices and updates into scalars.",
       {},
       &Make<xla::DynamicIndexSplitter>},
      {"eigh_expander",
       "EighExpander",
       "Writes symmetric eigendecompositions as loops of simpler operations.",
       {},
       &Make<xla::EighExpander>},
      {"float-normalization-bf16",
       "FloatNormalization",
       "Converts bf16 operations to f32 where the backend has no bf16 "
       "arithmetic, as XLA's CPU compiler does when no library supports bf16 "
       "dots.",
       {},
       [](const Options&) -> PassPtr {
         static const auto* support = new xla::FloatSupport(xla::BF16);
         return std::make_unique<xla::FloatNormalization>(support);
       }},
      {"gather_expander",
       "GatherExpander",
       "Writes gathers as loops of dynamic slices.",
       {{"mode",
         "simple",
         "\"simple\" expands gathers that need no loop, as XLA's CPU compiler "
         "does; \"all\" expands every gather.",
         {"simple", "all"}}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::GatherExpander>(
             options.String("mode") == "all"
                 ? xla::GatherExpander::kEliminateAllGathers
                 : xla::GatherExpander::kEliminateSimpleGathers);
       }},
      {"logistic-expander",
       "LogisticExpander",
       "Writes the logistic function with an exponential.",
       {},
       &Make<xla::LogisticExpander>},
      {"operand_upcaster",
       "OperandUpcaster",
       "Converts operands of dots and convolutions to the wider type of the "
       "result. XLA's CPU compiler excludes dots that a library supports.",
       {},
       &Make<xla::OperandUpcaster>},
      {"qr_expander",
       "QrExpander",
       "Writes QR decompositions as loops of simpler operations.",
       {},
       &Make<xla::QrExpander>},
      {"reduce-decomposer",
       "ReduceDecomposer",
       "Writes reduces that change a layout as a reduce and a copy; made for "
       "modules with assigned layouts.",
       {},
       &Make<xla::ReduceDecomposer>},
      {"reshape-decomposer",
       "ReshapeDecomposer",
       "Writes reshapes as bitcasts, with copies where data must move; made "
       "for modules with assigned layouts.",
       {},
       &Make<xla::ReshapeDecomposer>},
      {"result_caster",
       "ResultCaster",
       "Runs dots and convolutions in their operands' type and converts the "
       "result.",
       {},
       &Make<xla::ResultCaster>},
      {"rng-bit-generator-expander",
       "RngBitGeneratorExpander",
       "Writes rng-bit-generator as integer arithmetic.",
       {{"default_algorithm",
         "philox",
         "The algorithm of instructions that specify none; XLA's CPU compiler "
         "uses \"philox\".",
         {"philox", "three_fry"}}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<StatefulRngExpander>(
             options.String("default_algorithm") == "philox"
                 ? xla::RNG_PHILOX
                 : xla::RNG_THREE_FRY);
       }},
      {"rng-expander",
       "RngExpander",
       "Writes stateful rng instructions as integer arithmetic on a global "
       "state.",
       {},
       &Make<xla::RngExpander>},
      {"scatter_expander",
       "ScatterExpander",
       "Writes scatters as loops of dynamic updates.",
       {{"mode",
         "simple",
         "\"all\" expands every scatter; \"simple\" those that need no loop, "
         "as XLA's CPU compiler does; \"indeterministic\" those whose result "
         "may depend on the order of updates.",
         {"all", "simple", "indeterministic"}}},
       &MakeScatterExpander},
      {"select_and_scatter_expander",
       "SelectAndScatterExpander",
       "Writes select-and-scatter as a reduce-window and a scatter.",
       {},
       &Make<xla::SelectAndScatterExpander>},
      {"stochastic_convert_decomposer",
       "StochasticConvertDecomposer",
       "Writes stochastic rounding with comparisons.",
       {},
       &Make<xla::StochasticConvertDecomposer>},
      {"topk-decomposer",
       "TopkDecomposer",
       "Writes top-k instructions as sorts and slices.",
       {{"custom_calls", false,
         "Decompose custom calls of TopK too, which XLA's CPU compiler "
         "keeps."}},
       [](const Options& options) -> PassPtr {
         const bool custom_calls = options.Bool("custom_calls");
         const auto should_decompose =
             [custom_calls](const xla::HloInstruction* instruction) {
               // Workaround for an XLA bug: TopkDecomposer fails a CHECK where
               // a user other than get-tuple-element reads the tuple.
               for (const xla::HloInstruction* user : instruction->users()) {
                 if (user->opcode() != xla::HloOpcode::kGetTupleElement) {
                   return false;
                 }
               }
               return custom_calls ||
                      instruction->opcode() == xla::HloOpcode::kTopK;
             };
         return std::make_unique<xla::TopkDecomposer>(should_decompose);
       }},
      {"topk-rewriter",
       "TopkRewriter",
       "Writes sorts and slices that make up a top-k of f32 as a custom call "
       "of TopK, as XLA's CPU compiler does.",
       {},
       [](const Options&) -> PassPtr {
         return std::make_unique<xla::TopkRewriter>(
             [](const xla::HloSortInstruction* sort, int64_t) {
               return sort->operand(0)->shape().element_type() == xla::F32;
             });
       }},
      {"triangular_solve_expander",
       "TriangularSolveExpander",
       "Writes triangular solves as loops of simpler operations.",
       {{"block_size",
         int64_t{128},
         "Number of rows of each block.",
         {},
         /*minimum=*/1}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::TriangularSolveExpander>(
             options.Int("block_size"));
       }},
  };
}

}  // namespace hloenv
