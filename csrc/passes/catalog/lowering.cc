// SPDX-License-Identifier: Apache-2.0
#include "passes/catalog/catalog.h"
#include "passes/proposals/general_passes.h"
#include "xla/hlo/analysis/alias_info.h"
#include "xla/hlo/transforms/simplifiers/optimize_input_output_buffer_alias.h"
#include "xla/hlo/transforms/while_loop_trip_count_annotator.h"
#include "xla/service/copy_insertion.h"
#include "xla/service/cpu/cpu_instruction_fusion.h"
#include "xla/service/cpu/cpu_multi_output_fusion.h"
#include "xla/service/cpu/cpu_options.h"
#include "xla/service/cpu/small_while_loop_hoisting_pass.h"
#include "xla/service/dynamic_padder.h"
#include "xla/service/sharding_remover.h"

namespace hloenv {

namespace {

// XLA's passes keep the pointer, so the object is never destroyed. XLA's CPU
// compiler also uses the base class.
const xla::AliasInfo* CpuAliasInfo() {
  static const auto* info = new xla::AliasInfo();
  return info;
}

int64_t SmallWhileLoopBytes() {
  xla::HloModuleConfig config;
  config.set_debug_options(xla::DebugOptions());
  auto threshold = xla::cpu::options::SmallWhileLoopByteThreshold(config);
  CHECK_OK(threshold.status());
  return *threshold;
}

}  // namespace

std::vector<PassInfo> LoweringPasses() {
  return {
      {"copy-insertion",
       "CopyInsertion",
       "Inserts copies so that values that are live at the same time do not "
       "share a buffer. The call graph must be flat.",
       {{"use_region_analysis", false,
         "Analyse live regions of any size, to remove more copies."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::CopyInsertion>(
             CpuAliasInfo(),
             /*use_region_based_live_range_analysis=*/
             options.Bool("use_region_analysis") ? -1 : 0);
       }},
      {"cpu_multi_output_fusion",
       "CpuMultiOutputFusion",
       "Fuses instructions of equal shape that read the same operands into "
       "fusions with several results. XLA's CPU compiler runs it only where "
       "its multi-output fusion flag is set.",
       {},
       [](const Options&) -> PassPtr {
         return std::make_unique<xla::cpu::CpuMultiOutputFusion>(
             CpuAliasInfo());
       }},
      {"dynamic_padder",
       "DynamicPadder",
       "Pads dynamic dimensions to static ones and masks the padding.",
       {{"slice_dynamic_output", true,
         "Slice outputs whose size is dynamic to that size."}},
       [](const Options& options) -> PassPtr {
         xla::DynamicPadderOptions result;
         result.slice_dynamic_output = options.Bool("slice_dynamic_output");
         return std::make_unique<xla::DynamicPadder>(result);
       }},
      {"fusion",
       "CpuInstructionFusion",
       "Fuses producers into consumers where XLA's CPU compiler expects a "
       "gain. Run it after layout assignment: fusions made earlier do not "
       "compile.",
       {{"may_duplicate", true,
         "Copy a producer into each of its consumers. XLA's CPU compiler "
         "turns this off when it uses multi-output fusion."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::cpu::CpuInstructionFusion>(
             CpuAliasInfo(), options.Bool("may_duplicate"));
       }},
      GeneralFusionPass(),
      DotLoweringPass(),
      OneDnnCallsPass(),
      ThunkOrderPass(),
      GeneralLayoutPass(),
      {"optimize_input_output_buffer_alias",
       "OptimizeInputOutputBufferAlias",
       "Lets outputs use the buffers of donated inputs; changes the module's "
       "alias table, not its instructions.",
       {{"registered_buffer_donor_only", true,
         "Use only inputs that the module declares as donors, as XLA's CPU "
         "compiler does."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::OptimizeInputOutputBufferAlias>(
             options.Bool("registered_buffer_donor_only"));
       }},
      {"sharding-remover",
       "ShardingRemover",
       "Removes custom calls that only annotate a sharding.",
       {},
       &Make<xla::ShardingRemover>},
      SingleKernelPass(),
      {"small-while-loop-hoisting",
       "SmallWhileLoopHoistingPass",
       "Moves loops that access little memory into computations of their own, "
       "which the CPU backend compiles to one kernel.",
       {{"small_buffer_access_size",
         SmallWhileLoopBytes(),
         "Maximum number of bytes that a small loop accesses; the default is "
         "that of XLA's CPU compiler.",
         {},
         /*minimum=*/0}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::cpu::SmallWhileLoopHoistingPass>(
             options.Int("small_buffer_access_size"));
       }},
      {"while-loop-trip-count-annotator",
       "WhileLoopTripCountAnnotator",
       "Annotates loops with their trip count where it is known, so that the "
       "backend need not evaluate the condition.",
       {},
       &Make<xla::WhileLoopTripCountAnnotator>},
  };
}

}  // namespace hloenv
