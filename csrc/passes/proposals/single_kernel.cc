// SPDX-License-Identifier: Apache-2.0
// Proposes loops and runs of small instructions as single kernels.
#include "backend/single_kernel.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/region.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/service/call_graph.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

constexpr char kLoop[] = "loop";
constexpr char kPlainDots[] = "loop_plain_dots";
constexpr char kPlainScatters[] = "loop_plain_scatters";
constexpr char kRun[] = "run";

// A kernel of fewer is no gain.
constexpr int64_t kMinSteps = 4;
constexpr int64_t kMaxRunInstructions = 48;
constexpr int64_t kMaxRunBytes = 1 << 14;

class SingleKernel : public CandidatePass {
 public:
  explicit SingleKernel(const Options& options)
      : loop_(options.Bool(kLoop)),
        plain_dots_(options.Bool(kPlainDots)),
        plain_scatters_(options.Bool(kPlainScatters)),
        run_(options.Bool(kRun)),
        max_instructions_(options.Int("max_instructions")) {}

  absl::string_view name() const override { return "single-kernel"; }

  absl::StatusOr<std::vector<Proposal>> Propose(
      const HloModule& module) const override {
    std::unique_ptr<xla::CallGraph> call_graph = xla::CallGraph::Build(&module);
    std::vector<Proposal> proposals;
    for (const HloComputation* computation : RewritableComputations(module)) {
      if (IsInSingleKernel(*computation, *call_graph)) continue;
      for (const HloInstruction* instruction :
           computation->MakeInstructionPostOrder()) {
        if (instruction->opcode() != HloOpcode::kWhile) continue;
        HLOENV_RETURN_IF_ERROR(ProposeLoop(*instruction, &proposals));
      }
      if (run_) HLOENV_RETURN_IF_ERROR(ProposeRuns(*computation, &proposals));
    }
    return proposals;
  }

 private:
  static bool IsInSingleKernel(const HloComputation& computation,
                               const xla::CallGraph& call_graph) {
    const HloComputation* inner = &computation;
    while (!inner->IsEntryComputation()) {
      const auto& sites = call_graph.GetNode(inner).caller_callsites();
      if (sites.empty()) return true;  // dead
      if (IsSingleKernel(*sites.front().instruction())) return true;
      inner = sites.front().instruction()->parent();
    }
    return false;
  }

  // The rule by which the loop can be a single kernel.
  std::optional<absl::string_view> RuleFor(const KernelContents& loop) const {
    if (!loop.is_supported || loop.num_instructions > max_instructions_) {
      return std::nullopt;
    }
    if (loop.num_scatters > 0) {
      if (plain_scatters_) return kPlainScatters;
      return std::nullopt;
    }
    if (loop.num_other_fusions > 0) {
      if (plain_dots_) return kPlainDots;
      return std::nullopt;
    }
    if (loop_) return kLoop;
    return std::nullopt;
  }

  absl::Status ProposeLoop(const HloInstruction& loop,
                           std::vector<Proposal>* proposals) const {
    const std::optional<absl::string_view> rule = RuleFor(ContentsOf(loop));
    if (!rule.has_value() || loop.has_sharding()) return absl::OkStatus();
    return ProposeRegion(*rule, {&loop}, {&loop}, proposals);
  }

  static absl::Status ProposeRuns(const HloComputation& computation,
                                  std::vector<Proposal>* proposals) {
    const RunLimits limits = {kMinSteps, kMaxRunInstructions, kMaxRunBytes};
    for (const auto& members : StraightRuns(computation, limits)) {
      std::vector<const HloInstruction*> results = ResultsOfRun(members);
      const bool are_arrays = absl::c_all_of(
          results,
          [](const HloInstruction* each) { return each->shape().IsArray(); });
      if (results.empty() || !are_arrays) continue;
      HLOENV_RETURN_IF_ERROR(
          ProposeRegion(kRun, members, std::move(results), proposals));
    }
    return absl::OkStatus();
  }

  // Whether the backend can emit it; it crashes where a parameter is not read.
  static bool IsOneKernel(const HloComputation& region) {
    const KernelContents contents = ContentsOf(region);
    return contents.is_supported && contents.num_other_fusions == 0 &&
           contents.num_scatters == 0 &&
           absl::c_all_of(region.parameter_instructions(),
                          [](const HloInstruction* parameter) {
                            return !parameter->IsDead();
                          });
  }

  static absl::Status ProposeRegion(
      absl::string_view rule, const std::vector<const HloInstruction*>& members,
      std::vector<const HloInstruction*> results,
      std::vector<Proposal>* proposals) {
    auto region = std::make_shared<Region>(members, results);
    if (region->reads().empty()) return absl::OkStatus();
    HLOENV_RETURN_IF_ERROR(region->UndoFusions());
    if (rule == kPlainScatters) {
      HLOENV_RETURN_IF_ERROR(region->ExpandScatters());
    }
    if (!IsOneKernel(region->computation())) return absl::OkStatus();
    Proposal proposal;
    proposal.rule = std::string(rule);
    proposal.originals = std::move(results);
    proposal.reads = region->reads();
    proposal.reads_decided = true;
    proposal.build = [region](ImageOf image) { return region->Call(image); };
    proposals->push_back(std::move(proposal));
    return absl::OkStatus();
  }

  const bool loop_;
  const bool plain_dots_;
  const bool plain_scatters_;
  const bool run_;
  const int64_t max_instructions_;
};

}  // namespace

PassInfo SingleKernelPass() {
  return {
      "single-kernel",
      "hloenv::SingleKernel",
      "Proposes, for each loop that the CPU backend can emit as one LLVM "
      "kernel, "
      "to do so: its iterations start no thunks, but dots and convolutions "
      "become plain loops on one thread. jaxlib follows the decision too. Run "
      "it after XLA's fusion and before copy-insertion.",
      {{kLoop, true, "Loops as they are. Floats may round differently."},
       {kPlainDots, true,
        "Loops with fusions for a library, which become plain instructions. "
        "Floats may round differently."},
       {kPlainScatters, true,
        "Loops with scatters, which become loops over their updates; library "
        "fusions become plain instructions. Floats may round differently."},
       {"max_instructions",
        int64_t{1024},
        "Maximum number of instructions of a loop, with those in fusions; "
        "LLVM's time grows faster than this number.",
        {},
        /*minimum=*/1},
       {kRun, true,
        "Runs of at least 4 and at most 48 instructions outside loops, on "
        "arrays of at most 16 KiB. Floats may round differently."}},
      /*make=*/nullptr,
      [](const Options& options) -> std::unique_ptr<CandidatePass> {
        return std::make_unique<SingleKernel>(options);
      }};
}

}  // namespace hloenv
