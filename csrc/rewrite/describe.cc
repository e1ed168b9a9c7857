// SPDX-License-Identifier: Apache-2.0
//
// Lists the instructions that a choice adds and those that it makes dead.
#include <set>

#include "rewrite/capture.h"
#include "rewrite/use.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {
namespace {

using xla::HloInstruction;

// Appends the names of `value` and its transitive operands, down to
// `originals`, operands first. Skips instructions in `seen`, and adds to it.
void AppendAdded(const absl::flat_hash_set<const HloInstruction*>& originals,
                 const HloInstruction* value,
                 absl::flat_hash_set<const HloInstruction*>* seen,
                 std::vector<std::string>* names) {
  const auto is_done = [&](const HloInstruction* instruction) {
    return originals.contains(instruction) || seen->contains(instruction);
  };
  std::vector<const HloInstruction*> stack = {value};
  while (!stack.empty()) {
    const HloInstruction* top = stack.back();
    if (is_done(top)) {
      stack.pop_back();
      continue;
    }
    const size_t depth = stack.size();
    for (int64_t k = top->operand_count() - 1; k >= 0; --k) {
      if (!is_done(top->operand(k))) stack.push_back(top->operand(k));
    }
    if (stack.size() != depth) continue;
    stack.pop_back();
    seen->insert(top);
    names->emplace_back(top->name());
  }
}

}  // namespace

absl::Status Capture::CheckChoice(int64_t alternative, int64_t choice) const {
  if (alternative < 0 ||
      alternative >= static_cast<int64_t>(alternatives_.size())) {
    return Error(kDecisionError,
                 absl::StrCat("there is no alternative ", alternative,
                              "; there are ", alternatives_.size()));
  }
  const int64_t num_choices = alternatives_[alternative].num_choices();
  if (choice < 0 || choice >= num_choices) {
    return Error(kDecisionError,
                 absl::StrCat("alternative ", alternative, " has choices 0 to ",
                              num_choices - 1, ", not ", choice));
  }
  return absl::OkStatus();
}

absl::StatusOr<ChoiceInfo> Capture::Describe(int64_t alternative_index,
                                             int64_t choice) const {
  HLOENV_RETURN_IF_ERROR(CheckChoice(alternative_index, choice));
  const Alternative& alternative = alternatives_[alternative_index];
  ChoiceInfo info;
  if (choice == 0) {
    const HloInstruction* original =
        analysis_->index.at(alternative.sites[0].original);
    info.opcode = std::string(xla::HloOpcodeString(original->opcode()));
    return info;
  }
  info.passes = PassNames(alternative.sources[choice - 1]);
  info.rule = RuleOf(alternative, choice);
  if (alternative.kind == AlternativeKind::kPass) {
    info.opcode = "module";
    return info;
  }
  HLOENV_ASSIGN_OR_RETURN(const BuiltGraph* graph, GetGraph());
  const HloInstruction* value =
      graph->instructions[alternative.sites[0].nodes[choice - 1]];
  info.opcode = std::string(xla::HloOpcodeString(value->opcode()));
  absl::flat_hash_set<const HloInstruction*> seen;
  for (const Site& site : alternative.sites) {
    AppendAdded(graph->originals, graph->instructions[site.nodes[choice - 1]],
                &seen, &info.instructions);
  }
  info.makes_dead = MadeDead(alternative, choice);
  HLOENV_ASSIGN_OR_RETURN(const Flags* duplicates, GetDuplicatesCompared());
  info.duplicates_compared =
      !duplicates->empty() && (*duplicates)[alternative_index][choice] != 0;
  return info;
}

// The first rule of any site.
std::string Capture::RuleOf(const Alternative& alternative,
                            int64_t choice) const {
  for (const Site& site : alternative.sites) {
    const int32_t node = site.nodes[choice - 1];
    if (nodes_.IsOriginal(node)) continue;
    const NodeTable::NewNode& entry = nodes_.at(node);
    const absl::string_view rule = entry.source->RuleOf(entry.local);
    if (!rule.empty()) return std::string(rule);
  }
  return "";
}

// Each name once, in the order of the sources.
std::vector<std::string> Capture::PassNames(
    const std::vector<int32_t>& sources) const {
  std::vector<std::string> names;
  for (int32_t source : sources) {
    const std::string& name = pass_names_[sources_[source]->pass()];
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

absl::flat_hash_set<int32_t> Capture::OriginalsReadBy(
    const Alternative& alternative, int64_t choice) const {
  absl::flat_hash_set<int32_t> originals;
  absl::flat_hash_set<int32_t> seen;
  std::vector<int32_t> stack;
  for (const Site& site : alternative.sites) {
    stack.push_back(site.nodes[choice - 1]);
  }
  while (!stack.empty()) {
    const int32_t node = stack.back();
    stack.pop_back();
    if (nodes_.IsOriginal(node)) {
      originals.insert(node);
    } else if (seen.insert(node).second) {
      for (int32_t operand : nodes_.OperandsOf(node)) stack.push_back(operand);
    }
  }
  return originals;
}

// Originals without users when only this choice is accepted.
std::vector<std::string> Capture::MadeDead(const Alternative& alternative,
                                           int64_t choice) const {
  const absl::flat_hash_set<int32_t> still_read =
      OriginalsReadBy(alternative, choice);
  // A use by what is dead may be one that the choice takes over, too.
  absl::flat_hash_map<int32_t, std::set<Use>> lost_uses;
  std::vector<int32_t> dead;
  const auto lose = [&](int32_t original, absl::Span<const Use> uses) {
    std::set<Use>& lost = lost_uses[original];
    const size_t before = lost.size();
    lost.insert(uses.begin(), uses.end());
    const HloInstruction* instruction = analysis_->index.at(original);
    if ((lost.size() == before && !uses.empty()) ||
        still_read.contains(original) ||
        lost.size() < UsesOf(*analysis_, original).size() ||
        instruction->opcode() == xla::HloOpcode::kParameter ||
        std::binary_search(analysis_->effects.begin(), analysis_->effects.end(),
                           original)) {
      return;
    }
    dead.push_back(original);
  };
  for (const Site& site : alternative.sites) lose(site.original, site.uses);
  std::vector<std::string> names;
  for (size_t i = 0; i < dead.size(); ++i) {
    const HloInstruction* instruction = analysis_->index.at(dead[i]);
    names.emplace_back(instruction->name());
    const int32_t number = analysis_->index.NumberOf(instruction->parent());
    const int32_t first = dead[i] - instruction->local_id();
    for (int64_t k = 0; k < instruction->operand_count(); ++k) {
      const Use use = {number, dead[i], static_cast<int32_t>(k)};
      lose(first + instruction->operand(k)->local_id(), {use});
    }
  }
  return names;
}

}  // namespace hloenv
