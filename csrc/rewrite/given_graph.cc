// SPDX-License-Identifier: Apache-2.0
#include "rewrite/given_graph.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "rewrite/alternative.h"
#include "rewrite/prune.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

absl::Status Wrong(const HloInstruction& site, absl::string_view what) {
  return Error(kInvalidModuleError,
               absl::StrCat("alternative '", site.name(), "' ", what));
}

// The first instruction with an effect that only `call` needs; null if none.
// It would stay where another choice is taken.
const HloInstruction* EffectOfChoice(const HloInstruction& call) {
  if (call.HasSideEffect()) return &call;
  absl::flat_hash_set<const HloInstruction*> seen = {&call};
  std::vector<const HloInstruction*> left = {&call};
  while (!left.empty()) {
    const HloInstruction* user = left.back();
    left.pop_back();
    for (const HloInstruction* operand : user->operands()) {
      const bool is_only_needed_here = absl::c_all_of(
          operand->users(),
          [&](const HloInstruction* each) { return seen.contains(each); });
      if (!is_only_needed_here || !seen.insert(operand).second) continue;
      if (operand->HasSideEffect()) return operand;
      left.push_back(operand);
    }
  }
  return nullptr;
}

absl::Status CheckSite(const AlternativeSite& site) {
  const HloInstruction& call = *site.instruction;
  if (const HloInstruction* effect = EffectOfChoice(call); effect != nullptr) {
    return Wrong(
        call, absl::StrCat("has a choice with a side effect, '", effect->name(),
                           "', which would stay where another choice "
                           "is taken; leave it outside"));
  }
  if (site.kind != "instruction" && site.kind != "sites") {
    return Wrong(call, absl::StrCat("is of kind '", site.kind,
                                    "'; a graph may have the kinds "
                                    "'instruction' and 'sites'"));
  }
  if (call.operand_count() < 2) {
    return Wrong(call, absl::StrCat("has ", call.operand_count(),
                                    " operands; give the original and at "
                                    "least one other choice"));
  }
  for (const HloInstruction* choice : call.operands()) {
    if (!xla::ShapeUtil::Equal(choice->shape(), call.shape())) {
      return Wrong(call, absl::StrCat("has shape ", call.shape().ToString(true),
                                      ", its ", "choice '", choice->name(),
                                      "' ", choice->shape().ToString(true),
                                      "; give both one shape"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAlternativeGraph(const Module& graph) {
  for (const HloComputation* computation : graph.hlo().computations()) {
    for (const HloInstruction* instruction : computation->instructions()) {
      if (IsAlternative(*instruction) &&
          !AlternativeOf(*instruction).has_value()) {
        return Wrong(*instruction,
                     "has no number; give it backend_config={\"alternative\":"
                     "\"0\",\"kind\":\"instruction\",\"passes\":\"name\"}");
      }
    }
  }
  const HloInstruction* last = nullptr;
  int64_t number = -1;
  for (const AlternativeSite& site : FindAlternatives(graph.hlo())) {
    HLOENV_RETURN_IF_ERROR(CheckSite(site));
    const HloInstruction& call = *site.instruction;
    if (last == nullptr || site.alternative != number) {
      if (site.alternative != number + 1) {
        return Wrong(call, absl::StrCat("has number ", site.alternative,
                                        "; the numbers count from 0, and ",
                                        number + 1, " is missing"));
      }
    } else if (call.operand_count() != last->operand_count()) {
      return Wrong(call,
                   absl::StrCat("has ", call.operand_count(), " choices, and '",
                                last->name(), "' of the same number ",
                                last->operand_count()));
    }
    number = site.alternative;
    last = &call;
  }
  return absl::OkStatus();
}

absl::StatusOr<Module> ApplyToGraph(const Module& graph,
                                    absl::Span<const int64_t> decisions) {
  std::unique_ptr<xla::HloModule> result = graph.CloneHlo();
  const std::vector<AlternativeSite> sites = FindAlternatives(*result);
  const int64_t count = sites.empty() ? 0 : sites.back().alternative + 1;
  if (static_cast<int64_t>(decisions.size()) != count) {
    return Error(kDecisionError,
                 absl::StrCat("there are ", count, " alternatives, but ",
                              decisions.size(),
                              " decisions were given; give one for each"));
  }
  for (const AlternativeSite& site : sites) {
    HloInstruction* call = site.instruction;
    const int64_t decision = decisions[site.alternative];
    if (decision < 0 || decision >= call->operand_count()) {
      return Error(kDecisionError,
                   absl::StrCat("decision ", site.alternative, " is ", decision,
                                ", but alternative ", site.alternative,
                                " has choices 0 (the original) to ",
                                call->operand_count() - 1));
    }
    HLOENV_RETURN_IF_ERROR(
        call->ReplaceAllUsesWith(call->mutable_operand(decision)));
    HLOENV_RETURN_IF_ERROR(call->DropAllControlDeps());
  }
  HLOENV_RETURN_IF_ERROR(Prune(result.get()));
  return Module(std::move(result));
}

}  // namespace hloenv
