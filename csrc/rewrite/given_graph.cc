// SPDX-License-Identifier: Apache-2.0
#include "rewrite/given_graph.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
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

// An instruction with an effect that some decisions leave without a reader, and
// that would stay; null if there is none.
const HloInstruction* EffectOfChoice(const HloComputation& computation) {
  const std::vector<HloInstruction*> order =
      computation.MakeInstructionPostOrder();
  if (absl::c_none_of(order, [](const HloInstruction* instruction) {
        return IsAlternative(*instruction);
      })) {
    return nullptr;
  }
  for (const HloInstruction* effect : order) {
    if (!effect->HasSideEffect()) continue;
    // What depends on it, and whether whatever is decided.
    absl::flat_hash_map<const HloInstruction*, bool> always = {{effect, true}};
    bool is_in_choice = false;
    bool is_needed = effect->IsRoot();
    for (const HloInstruction* each : order) {
      if (each == effect) continue;
      bool depends = false;
      bool any = false;
      bool all = true;
      for (const HloInstruction* operand : each->operands()) {
        const auto found = always.find(operand);
        depends |= found != always.end();
        const bool is_always = found != always.end() && found->second;
        any |= is_always;
        all &= is_always;
      }
      if (!depends) continue;
      is_in_choice |= IsAlternative(*each);
      const bool is_always = IsAlternative(*each) ? all : any;
      always[each] = is_always;
      is_needed |= is_always && (each->IsRoot() || each->HasSideEffect());
    }
    if (is_in_choice && !is_needed) return effect;
  }
  return nullptr;
}

absl::Status CheckSite(const AlternativeSite& site) {
  const HloInstruction& call = *site.instruction;
  if (call.HasSideEffect()) {
    return Wrong(call, "has a side effect itself");
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
  for (const HloComputation* computation : graph.hlo().computations()) {
    const HloInstruction* effect = EffectOfChoice(*computation);
    if (effect == nullptr) continue;
    return Error(kInvalidModuleError,
                 absl::StrCat("instruction '", effect->name(),
                              "' has a side effect, and only some choices need "
                              "it; it would stay where others are taken: leave "
                              "it outside of the choices"));
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
