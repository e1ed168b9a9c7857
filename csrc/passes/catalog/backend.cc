// SPDX-License-Identifier: Apache-2.0
#include "passes/catalog/catalog.h"
#include "passes/compiler_owned_passes.h"
#include "xla/backends/cpu/transforms/collectives/all_reduce_combiner.h"
#include "xla/hlo/transforms/memory_space_propagation.h"
#include "xla/hlo/transforms/shape_canonicalizer.h"
#include "xla/hlo/transforms/simplifiers/float_normalization.h"
#include "xla/primitive_util.h"
#include "xla/service/cpu/fusion_wrapper.h"
#include "xla/shape_pool.h"

namespace hloenv {

namespace {

// Upcasts arithmetic in kLow to kHigh, for a type pair of XLA's CPU compiler.
template <xla::PrimitiveType kLow, xla::PrimitiveType kHigh>
PassInfo Normalization() {
  const std::string low = xla::primitive_util::LowercasePrimitiveTypeName(kLow);
  return {absl::StrCat("float-normalization-", low),
          "FloatNormalization",
          absl::StrCat("Converts ", low, " operations to ",
                       xla::primitive_util::LowercasePrimitiveTypeName(kHigh),
                       " where the backend has no ", low,
                       " arithmetic, as XLA's CPU compiler does."),
          {},
          [](const Options&) -> PassPtr {
            static const auto* support = new xla::FloatSupport(kLow, kHigh);
            return std::make_unique<xla::FloatNormalization>(support);
          }};
}

PassInfo CompilerOwned(const char* class_name, const char* summary,
                       PassPtr (*make)(const Options&), const char* name) {
  return {name, class_name, summary, {}, make};
}

}  // namespace

std::vector<PassInfo> BackendPasses() {
  return {
      CompilerOwned(
          "ParallelTaskAssigner",
          "Splits large operations among threads. Runs the CPU compiler's own "
          "pass object, with its description of the machine.",
          [](const Options&) {
            return MakeCompilerOwnedPass("cpu-parallel-task-assigner");
          },
          "cpu-parallel-task-assigner"),
      CompilerOwned(
          "ConvCanonicalization",
          "Transposes convolutions into the form that the CPU backend's "
          "library supports. Runs the CPU compiler's own pass object.",
          [](const Options&) {
            return MakeCompilerOwnedPass("convolution-canonicalization");
          },
          "convolution-canonicalization"),
      {"cpu-all-reduce-combiner",
       "CpuAllReduceCombiner",
       "Merges all-reduces into one all-reduce of a tuple.",
       {{"threshold_bytes",
         int64_t{1} << 30,
         "Maximum size of one merged all-reduce, in bytes.",
         {},
         /*minimum=*/1},
        {"threshold_count",
         int64_t{256},
         "Maximum number of all-reduces merged into one.",
         {},
         /*minimum=*/1}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::cpu::CpuAllReduceCombiner>(
             options.Int("threshold_bytes"), options.Int("threshold_count"));
       }},
      CompilerOwned(
          "LibraryRewriter",
          "Wraps dots that a library runs faster in fusions for that library. "
          "Runs the CPU compiler's own pass object.",
          [](const Options&) {
            return MakeCompilerOwnedPass("dot-library-rewriter");
          },
          "dot-library-rewriter"),
      Normalization<xla::F4E2M1FN, xla::F16>(),
      Normalization<xla::F8E3M4, xla::F16>(),
      Normalization<xla::F8E4M3, xla::F16>(),
      Normalization<xla::F8E4M3B11FNUZ, xla::F16>(),
      Normalization<xla::F8E4M3FN, xla::F16>(),
      Normalization<xla::F8E4M3FNUZ, xla::F16>(),
      Normalization<xla::F8E5M2, xla::F16>(),
      Normalization<xla::F8E5M2FNUZ, xla::F16>(),
      Normalization<xla::F8E8M0FNU, xla::F32>(),
      Normalization<xla::S4, xla::S8>(),
      Normalization<xla::U4, xla::U8>(),
      {"fusion-wrapper",
       "FusionWrapper",
       "Wraps operations that the CPU backend emits only inside fusions in "
       "fusions of their own. Run it after fusion.",
       {{"loop_fusion", true, "Wrap elementwise operations too."},
        {"tiled_emitter", true,
         "Wrap operations that the tiled emitter supports."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::cpu::FusionWrapper>(
             options.Bool("loop_fusion"), options.Bool("tiled_emitter"));
       }},
      {"memory-space-propagation",
       "MemorySpacePropagation",
       "Propagates the memory spaces of a fusion's operands and results into "
       "its body.",
       {},
       [](const Options&) -> PassPtr {
         return std::make_unique<xla::MemorySpacePropagation>();
       }},
      {"shape-canonicalizer",
       "ShapeCanonicalizer",
       "Stores equal shapes once in memory; does not change instructions.",
       {},
       [](const Options&) -> PassPtr {
         return std::make_unique<xla::ShapeCanonicalizer>(
             xla::ShapePool::Default());
       }},
  };
}

#define HLOENV_PIPELINE(name, summary)                                   \
  {name, "HloPassPipeline", summary, {}, [](const Options&) -> PassPtr { \
     return MakeCompilerOwnedPass(name);                                 \
   }}

std::vector<PassInfo> PipelinePasses() {
  return {
      HLOENV_PIPELINE("dot-library-passes",
                      "A pipeline of XLA's CPU compiler: replaces dots with "
                      "library calls where these are faster."),
      HLOENV_PIPELINE("hlo normalization",
                      "A pipeline of XLA's CPU compiler: decomposes reshapes "
                      "and reduces with assigned layouts."),
      HLOENV_PIPELINE("post_scatter_expansion_simplification",
                      "A pipeline of XLA's CPU compiler: simplifies expanded "
                      "scatters to a fixed point."),
      HLOENV_PIPELINE("sharding-removal",
                      "A pipeline of XLA's CPU compiler: removes sharding "
                      "annotations."),
      HLOENV_PIPELINE("simplification",
                      "A pipeline of XLA's CPU compiler: runs the simplifiers "
                      "that precede layout assignment to a fixed point."),
  };
}

#undef HLOENV_PIPELINE

const std::vector<ExcludedPass>& ExcludedPasses() {
  static const auto* passes = new std::vector<ExcludedPass>({
      {"domain_isolator",
       "it needs a rule that defines domain boundaries; XLA has one for "
       "shardings only"},
      {"domain_remover", "it needs the domains that domain_isolator makes"},
      {"hlo-descheduler", "hloenv does not run passes on scheduled modules"},
      {"hlo-memory-scheduler",
       "most passes cannot run on a scheduled module, because they do not "
       "update the schedule"},
      {"hlo-trivial-scheduler",
       "most passes cannot run on a scheduled module, because they do not "
       "update the schedule"},
      {"hlo-verifier", "it checks and changes nothing: use HloModule.verify()"},
      {"layout-assignment",
       "its object is built for the entry layout of one module: decide it "
       "inside XLA's compiler, with hloenv.intercept"},
      {"literal-canonicalizer",
       "it fails a CHECK on tuple constants, and changes no instruction"},
      {"onednn-contraction-rewriter",
       "its calls of oneDNN have scratch memory for a number of threads, and "
       "a process with more fails a CHECK: decide onednn-calls"},
      {"onednn-ops-rewriter",
       "it takes normalizations along another dimension of a square array for "
       "a softmax"},
      {"sharding-propagation", "it is for several devices"},
      {"simplification after layout assignment",
       "it fails a CHECK on modules whose layouts XLA did not assign: decide "
       "its passes inside XLA's compiler, with hloenv.intercept"},
      {"spmd-partitioning", "it is for several devices"},
      {"sub-byte-size-removal",
       "HLO text does not preserve its changes: XLA's parser gives constants "
       "other element sizes"},
      {"sub-byte-size-setter",
       "HLO text does not preserve its changes: XLA's parser gives constants "
       "other element sizes"},
  });
  return *passes;
}

}  // namespace hloenv
