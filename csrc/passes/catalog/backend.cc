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

// The types that XLA's CPU compiler takes out, each with the one that it
// computes in instead.
template <xla::PrimitiveType kLow, xla::PrimitiveType kHigh>
PassInfo Normalization() {
  const std::string low = xla::primitive_util::LowercasePrimitiveTypeName(kLow);
  return {absl::StrCat("float-normalization-", low),
          "FloatNormalization",
          absl::StrCat("Runs in ",
                       xla::primitive_util::LowercasePrimitiveTypeName(kHigh),
                       " what a backend without ", low,
                       " arithmetic cannot run in ", low,
                       ", as XLA's CPU compiler does."),
          {},
          [](const Options&) -> PassPtr {
            static const auto* support = new xla::FloatSupport(kLow, kHigh);
            return std::make_unique<xla::FloatNormalization>(support);
          }};
}

PassInfo Borrowed(const char* class_name, const char* summary,
                  PassPtr (*make)(const Options&), const char* name) {
  return {name, class_name, summary, {}, make};
}

}  // namespace

std::vector<PassInfo> BackendPasses() {
  return {
      Borrowed(
          "ParallelTaskAssigner",
          "Splits the work of large operations among threads: the CPU "
          "compiler's own object, with its description of the machine.",
          [](const Options&) {
            return MakeCompilerOwnedPass("cpu-parallel-task-assigner");
          },
          "cpu-parallel-task-assigner"),
      Borrowed(
          "ConvCanonicalization",
          "Transposes convolutions into the form that the CPU backend's "
          "library takes: the CPU compiler's own object.",
          [](const Options&) {
            return MakeCompilerOwnedPass("convolution-canonicalization");
          },
          "convolution-canonicalization"),
      {"cpu-all-reduce-combiner",
       "CpuAllReduceCombiner",
       "Merges all-reduces into one of a tuple.",
       {{"threshold_bytes",
         int64_t{1} << 30,
         "Bytes that one merged all-reduce may have.",
         {},
         /*minimum=*/1},
        {"threshold_count",
         int64_t{256},
         "All-reduces that may be merged into one.",
         {},
         /*minimum=*/1}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::cpu::CpuAllReduceCombiner>(
             options.Int("threshold_bytes"), options.Int("threshold_count"));
       }},
      Borrowed(
          "LibraryRewriter",
          "Puts dots that a library runs faster into fusions for it: the "
          "CPU compiler's own object.",
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
       "Puts operations that the CPU backend has code for in fusions only "
       "into fusions of their own. It belongs after fusion.",
       {{"loop_fusion", true, "Wrap elementwise operations too."},
        {"tiled_emitter", true, "Wrap what the tiled emitter takes."}},
       [](const Options& options) -> PassPtr {
         return std::make_unique<xla::cpu::FusionWrapper>(
             options.Bool("loop_fusion"), options.Bool("tiled_emitter"));
       }},
      {"memory-space-propagation",
       "MemorySpacePropagation",
       "Carries the memory spaces of a fusion's operands and results into its "
       "body.",
       {},
       [](const Options&) -> PassPtr {
         return std::make_unique<xla::MemorySpacePropagation>();
       }},
      {"shape-canonicalizer",
       "ShapeCanonicalizer",
       "Lets equal shapes share memory; shapes and instructions stay.",
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
                      "A pipeline of XLA's CPU compiler: gives dots to a "
                      "library where that is faster."),
      HLOENV_PIPELINE("hlo normalization",
                      "A pipeline of XLA's CPU compiler: writes reshapes and "
                      "reduces of assigned layouts in simpler forms."),
      HLOENV_PIPELINE("post_scatter_expansion_simplification",
                      "A pipeline of XLA's CPU compiler: simplifies to a fixed "
                      "point what expanding scatters left."),
      HLOENV_PIPELINE("sharding-removal",
                      "A pipeline of XLA's CPU compiler: removes what only "
                      "annotates shardings."),
      HLOENV_PIPELINE("simplification",
                      "A pipeline of XLA's CPU compiler: its simplifiers to a "
                      "fixed point, as it runs them before layouts."),
  };
}

#undef HLOENV_PIPELINE

const std::vector<ExcludedPass>& ExcludedPasses() {
  static const auto* passes = new std::vector<ExcludedPass>({
      {"domain_isolator",
       "it needs a rule that says where a domain ends, which XLA has for "
       "shardings only"},
      {"domain_remover", "it needs the domains that domain_isolator makes"},
      {"hlo-descheduler",
       "a scheduled module is final: its passes would have to keep the "
       "schedule"},
      {"hlo-memory-scheduler",
       "a scheduled module is final: no pass can follow that does not keep the "
       "schedule"},
      {"hlo-trivial-scheduler",
       "a scheduled module is final: no pass can follow that does not keep the "
       "schedule"},
      {"hlo-verifier", "it checks and changes nothing: use HloModule.verify()"},
      {"layout-assignment",
       "it is made for the entry layout of one module: decide it where XLA's "
       "compiler makes it, with hloenv.intercept"},
      {"literal-canonicalizer",
       "it dies of constants that are tuples, and changes no instruction"},
      {"onednn-contraction-rewriter",
       "XLA's CPU compiler does not make it in this build, and its header "
       "needs "
       "oneDNN's"},
      {"onednn-ops-rewriter",
       "XLA's CPU compiler does not make it in this build, and its header "
       "needs "
       "oneDNN's"},
      {"sharding-propagation", "it works for several devices"},
      {"simplification after layout assignment",
       "it dies of modules whose layouts XLA did not assign: decide its passes "
       "where XLA runs them, with hloenv.intercept"},
      {"spmd-partitioning", "it works for several devices"},
      {"sub-byte-size-removal",
       "what it changes does not survive text: XLA's parser gives constants "
       "other element sizes"},
      {"sub-byte-size-setter",
       "what it changes does not survive text: XLA's parser gives constants "
       "other element sizes"},
  });
  return *passes;
}

}  // namespace hloenv
