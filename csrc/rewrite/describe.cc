// SPDX-License-Identifier: Apache-2.0
//
// What a capture says of its alternatives: which decisions matter, what a
// choice adds and what it makes dead.
#include "rewrite/capture.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

absl::StatusOr<std::vector<uint8_t>> Capture::Relevant(
    absl::Span<const int64_t> decisions) const {
  HLOENV_RETURN_IF_ERROR(CheckDecisions(decisions, /*partial=*/true));
  const size_t num_alternatives = alternatives_.size();
  std::vector<uint8_t> relevant(num_alternatives, 0);
  if (num_alternatives == 0) return relevant;
  for (size_t a = 0; a < num_alternatives; ++a) {
    if (alternatives_[a].kind != AlternativeKind::kPass) continue;
    relevant[a] = 1;
    // The pass's own module has no place for the other decisions.
    if (decisions[a] > 0) return relevant;
  }

  // Alternatives at each use, outermost first; sites of one value by position.
  struct Offer {
    Use use;
    int32_t alternative;
    int32_t site;
  };
  std::vector<Offer> offers;
  for (size_t a = 0; a < num_alternatives; ++a) {
    if (alternatives_[a].kind == AlternativeKind::kPass) continue;
    for (size_t s = 0; s < alternatives_[a].sites.size(); ++s) {
      for (const Use& use : alternatives_[a].sites[s].uses) {
        offers.push_back(
            {use, static_cast<int32_t>(a), static_cast<int32_t>(s)});
      }
    }
  }
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    if (!(a.use == b.use)) return a.use < b.use;
    return a.alternative > b.alternative;
  });

  std::vector<uint8_t> seen(num_originals() + nodes_.size(), 0);
  std::vector<uint8_t> seen_computation(analysis_->index.computations().size(),
                                        0);
  absl::flat_hash_set<const HloComputation*> seen_new;
  std::vector<int32_t> stack;
  std::vector<int32_t> computations;
  const auto visit = [&](int32_t node) {
    if (seen[node] == 0) {
      seen[node] = 1;
      stack.push_back(node);
    }
  };
  const auto visit_computation = [&](int32_t number) {
    if (seen_computation[number] == 0) {
      seen_computation[number] = 1;
      computations.push_back(number);
    }
  };
  // What a use reads, given the decisions.
  const auto visit_use = [&](const Use& use, int32_t original) {
    auto it = std::lower_bound(offers.begin(), offers.end(), use,
                               [](const Offer& offer, const Use& wanted) {
                                 return offer.use < wanted;
                               });
    for (; it != offers.end() && it->use == use; ++it) {
      relevant[it->alternative] = 1;
      const Site& site = alternatives_[it->alternative].sites[it->site];
      const int64_t decision = decisions[it->alternative];
      if (decision > 0) {
        visit(site.nodes[decision - 1]);
        return;
      }
      if (decision < 0) {
        for (int32_t node : site.nodes) visit(node);
      }
    }
    visit(original);
  };
  // Originals called from the new computations of a shadow.
  const auto visit_called = [&](const Pass& pass,
                                const HloInstruction* instruction) {
    std::vector<const HloComputation*> todo(
        instruction->called_computations().begin(),
        instruction->called_computations().end());
    while (!todo.empty()) {
      const HloComputation* called = todo.back();
      todo.pop_back();
      if (const HloComputation* origin = CalledOrigin(pass, called)) {
        visit_computation(analysis_->index.NumberOf(origin));
        continue;
      }
      if (!seen_new.insert(called).second) continue;
      for (const HloInstruction* inner : called->instructions()) {
        todo.insert(todo.end(), inner->called_computations().begin(),
                    inner->called_computations().end());
      }
    }
  };

  visit_computation(
      analysis_->index.NumberOf(analysis_->hlo.entry_computation()));
  while (!computations.empty() || !stack.empty()) {
    if (!computations.empty()) {
      const int32_t number = computations.back();
      computations.pop_back();
      const HloComputation* computation =
          analysis_->index.computations()[number];
      visit_use({number, Use::kRoot, 0},
                analysis_->index.Of(computation->root_instruction()));
      const int32_t first = analysis_->index.First(computation);
      const int32_t last =
          static_cast<size_t>(number) + 1 <
                  analysis_->index.computations().size()
              ? analysis_->index.First(
                    analysis_->index.computations()[number + 1])
              : num_originals();
      auto effect = std::lower_bound(analysis_->effects.begin(),
                                     analysis_->effects.end(), first);
      for (; effect != analysis_->effects.end() && *effect < last; ++effect) {
        visit(*effect);
      }
      continue;
    }
    const int32_t node = stack.back();
    stack.pop_back();
    if (!IsOriginal(node)) {
      for (int32_t operand : OperandsOf(node)) visit(operand);
      const Node& entry = NewNode(node);
      if (entry.instruction != nullptr) {
        visit_called(passes_[entry.pass], entry.instruction);
      }
      continue;
    }
    const HloInstruction* instruction = analysis_->index.at(node);
    const int32_t first = node - instruction->local_id();
    const int32_t number = analysis_->index.NumberOf(instruction->parent());
    for (int64_t k = 0; k < instruction->operand_count(); ++k) {
      visit_use({number, node, static_cast<int32_t>(k)},
                first + instruction->operand(k)->local_id());
    }
    for (const HloInstruction* before : instruction->control_predecessors()) {
      visit(first + before->local_id());
    }
    for (const HloComputation* called : instruction->called_computations()) {
      visit_computation(analysis_->index.NumberOf(called));
    }
  }
  return relevant;
}

absl::StatusOr<ChoiceInfo> Capture::Describe(int64_t alternative_index,
                                             int64_t choice) const {
  if (alternative_index < 0 ||
      alternative_index >= static_cast<int64_t>(alternatives_.size())) {
    return Error(kDecisionError,
                 absl::StrCat("there is no alternative ", alternative_index,
                              "; there are ", alternatives_.size()));
  }
  const Alternative& alternative = alternatives_[alternative_index];
  if (choice < 0 || choice >= alternative.num_choices()) {
    return Error(
        kDecisionError,
        absl::StrCat("alternative ", alternative_index, " has choices 0 to ",
                     alternative.num_choices() - 1, ", not ", choice));
  }
  ChoiceInfo info;
  const HloInstruction* original =
      analysis_->index.at(alternative.sites[0].original);
  if (choice == 0) {
    info.opcode = std::string(xla::HloOpcodeString(original->opcode()));
    return info;
  }
  info.passes = PassNames(alternative.passes[choice - 1]);
  for (const Site& site : alternative.sites) {
    if (IsOriginal(site.nodes[choice - 1])) continue;
    const Node& node = NewNode(site.nodes[choice - 1]);
    if (node.instruction != nullptr) continue;
    const std::string& rule = passes_[node.pass].proposals[node.proposal].rule;
    if (!rule.empty() && info.rule.empty()) info.rule = rule;
  }
  if (alternative.kind == AlternativeKind::kPass) {
    info.opcode = "module";
    return info;
  }
  HLOENV_ASSIGN_OR_RETURN(const BuiltGraph* graph, GetGraph());
  const HloInstruction* value =
      graph->instructions[alternative.sites[0].nodes[choice - 1]];
  info.opcode = std::string(xla::HloOpcodeString(value->opcode()));
  // What the choice adds: down to originals, operands first.
  absl::flat_hash_set<const HloInstruction*> seen;
  for (const Site& site : alternative.sites) {
    std::vector<const HloInstruction*> stack = {
        graph->instructions[site.nodes[choice - 1]]};
    while (!stack.empty()) {
      const HloInstruction* top = stack.back();
      if (graph->originals.contains(top) || seen.contains(top)) {
        stack.pop_back();
        continue;
      }
      const size_t depth = stack.size();
      for (int64_t k = top->operand_count() - 1; k >= 0; --k) {
        const HloInstruction* operand = top->operand(k);
        if (!graph->originals.contains(operand) && !seen.contains(operand)) {
          stack.push_back(operand);
        }
      }
      if (stack.size() != depth) continue;
      stack.pop_back();
      seen.insert(top);
      info.instructions.emplace_back(top->name());
    }
  }
  info.makes_dead = MadeDead(alternative, choice);
  HLOENV_ASSIGN_OR_RETURN(const Flags* duplicates, GetDuplicatesCompared());
  info.duplicates_compared =
      !duplicates->empty() && (*duplicates)[alternative_index][choice] != 0;
  return info;
}

// Each name once, in the order of the passes.
std::vector<std::string> Capture::PassNames(
    const std::vector<int32_t>& passes) const {
  std::vector<std::string> names;
  for (int32_t pass : passes) {
    const std::string& name = pass_names_[passes_[pass].name];
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

// Originals that nothing reads any more when this choice alone is taken.
std::vector<std::string> Capture::MadeDead(const Alternative& alternative,
                                           int64_t choice) const {
  // What the replacement reads stays.
  absl::flat_hash_map<int32_t, int64_t> extra_reads;
  {
    std::vector<int32_t> stack;
    absl::flat_hash_set<int32_t> seen;
    for (const Site& site : alternative.sites) {
      stack.push_back(site.nodes[choice - 1]);
    }
    while (!stack.empty()) {
      const int32_t node = stack.back();
      stack.pop_back();
      if (IsOriginal(node)) {
        ++extra_reads[node];
        continue;
      }
      if (!seen.insert(node).second) continue;
      for (int32_t operand : OperandsOf(node)) stack.push_back(operand);
    }
  }
  absl::flat_hash_map<int32_t, int64_t> lost_uses;
  std::vector<int32_t> dead;
  const auto lose = [&](int32_t original, int64_t num_uses) {
    const int64_t lost = lost_uses[original] += num_uses;
    const HloInstruction* instruction = analysis_->index.at(original);
    if (extra_reads.contains(original) ||
        lost < static_cast<int64_t>(UsesOf(original).size()) ||
        instruction->opcode() == xla::HloOpcode::kParameter ||
        std::binary_search(analysis_->effects.begin(), analysis_->effects.end(),
                           original)) {
      return;
    }
    dead.push_back(original);
  };
  for (const Site& site : alternative.sites) {
    lose(site.original, static_cast<int64_t>(site.uses.size()));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < dead.size(); ++i) {
    const HloInstruction* instruction = analysis_->index.at(dead[i]);
    names.emplace_back(instruction->name());
    const int32_t first = dead[i] - instruction->local_id();
    for (const HloInstruction* operand : instruction->operands()) {
      lose(first + operand->local_id(), 1);
    }
  }
  return names;
}

}  // namespace hloenv
