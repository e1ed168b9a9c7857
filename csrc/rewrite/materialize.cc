// SPDX-License-Identifier: Apache-2.0
//
// Builds modules from a capture: the alternative graph, and the module of a
// decision vector. Both start from a clone of the original and add the needed
// replacements.
//
//   module                 alternative graph         decisions = {1}
//   d = divide(p, two)     d = divide(p, two)
//                          m = multiply(p, half)     m = multiply(p, half)
//                          a = custom-call(d, m)
//   ROOT n = negate(d)     ROOT n = negate(a)        ROOT n = negate(m)
//
// Each choice equals the original at the uses of its site, so any combination
// of choices gives every use the value that it had; and the dependencies form
// no cycle (Capture::BreakCycles).
#include "rewrite/alternative.h"
#include "rewrite/capture.h"
#include "rewrite/materializer.h"
#include "rewrite/prune.h"
#include "support/status.h"

namespace hloenv {

using xla::HloCloneContext;
using xla::HloInstruction;
using xla::HloModule;

const HloModule* Capture::OwnResult(absl::Span<const int64_t> decisions) const {
  const bool accepts_any =
      absl::c_any_of(decisions, [](int64_t decision) { return decision > 0; });
  if (!accepts_any) return nullptr;
  for (const std::unique_ptr<RewriteSource>& source : sources_) {
    // The result of one part of a union pass is not that of the union.
    const auto is_of_same_pass = [&source](const auto& other) {
      return other->pass() == source->pass();
    };
    if (absl::c_count_if(sources_, is_of_same_pass) > 1) continue;
    const absl::StatusOr<std::vector<int64_t>> own =
        DecisionsFor(pass_names_[source->pass()]);
    if (own.ok() && absl::c_equal(*own, decisions)) return source->Result();
  }
  return nullptr;
}

absl::StatusOr<Module> Capture::Apply(absl::Span<const int64_t> decisions,
                                      bool rebuild) const {
  HLOENV_RETURN_IF_ERROR(CheckDecisions(decisions, /*partial=*/false));
  const HloModule* result = rebuild ? nullptr : OwnResult(decisions);
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (alternatives_[a].kind == AlternativeKind::kPass && decisions[a] > 0) {
      const int32_t source = alternatives_[a].sources[decisions[a] - 1].front();
      result = sources_[source]->Result();
    }
  }
  if (result != nullptr) {
    std::unique_ptr<HloModule> clone = result->Clone(/*suffix=*/"");
    HLOENV_RETURN_IF_ERROR(Prune(clone.get()));
    return Module(std::move(clone));
  }
  Materializer materializer(module_, nodes_);
  HLOENV_RETURN_IF_ERROR(Rewrite(decisions, &materializer));
  return Module(materializer.Take());
}

absl::Status Capture::ApplyInPlace(
    absl::Span<const int64_t> decisions, HloModule* module,
    std::unique_ptr<HloCloneContext>&& images) const {
  HLOENV_RETURN_IF_ERROR(CheckDecisions(decisions, /*partial=*/false));
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (alternatives_[a].kind == AlternativeKind::kPass && decisions[a] > 0) {
      return Error(kDecisionError,
                   absl::StrCat("alternative ", a,
                                " is an indivisible pass: accept it together "
                                "with exactly the other choices of that pass, "
                                "or reject it"));
    }
  }
  Materializer result(module_, nodes_, module, std::move(images));
  return Rewrite(decisions, &result);
}

absl::Status Capture::Rewrite(absl::Span<const int64_t> decisions,
                              Materializer* result) const {
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (decisions[a] == 0) continue;
    for (const Site& site : alternatives_[a].sites) {
      result->Need(site.nodes[decisions[a] - 1]);
    }
  }
  HLOENV_RETURN_IF_ERROR(result->BuildNeeded());
  // If two alternatives replace one value, the later one is the outer one.
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (decisions[a] == 0) continue;
    for (const Site& site : alternatives_[a].sites) {
      HloInstruction* value = result->Get(site.nodes[decisions[a] - 1]);
      for (const Use& use : site.uses) {
        HLOENV_RETURN_IF_ERROR(result->Rewire(use, value));
      }
    }
  }
  HLOENV_RETURN_IF_ERROR(FollowDecisions(decisions, result));
  return Prune(result->hlo());
}

// Makes accepted nodes read what others are instead of their operands, where
// they do (NodeTable::ReadsDecided).
absl::Status Capture::FollowDecisions(absl::Span<const int64_t> decisions,
                                      Materializer* result) const {
  std::vector<int32_t> followers;
  absl::flat_hash_map<int32_t, int32_t> node_for;  // by original
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (decisions[a] == 0) continue;
    for (const Site& site : alternatives_[a].sites) {
      const int32_t node = site.nodes[decisions[a] - 1];
      if (!nodes_.ReadsDecided(node)) continue;
      followers.push_back(node);
      node_for[site.original] = node;
    }
  }
  for (const int32_t follower : followers) {
    HloInstruction* call = result->Get(follower);
    if (call->opcode() == xla::HloOpcode::kGetTupleElement) {
      call = call->mutable_operand(0);
    }
    for (const int32_t read : nodes_.OperandsOf(follower)) {
      const auto found = node_for.find(read);
      if (found == node_for.end()) continue;
      const HloInstruction* original = result->Get(read);
      for (int64_t k = 0; k < call->operand_count(); ++k) {
        if (call->operand(k) != original) continue;
        HLOENV_RETURN_IF_ERROR(
            call->ReplaceOperandWith(k, result->Get(found->second)));
      }
    }
  }
  return absl::OkStatus();
}

// Puts alternative `number` between its sites' values and their uses.
absl::Status Capture::AddAlternative(int64_t number,
                                     Materializer* result) const {
  const Alternative& alternative = alternatives_[number];
  std::vector<std::vector<std::string>> passes;
  for (const std::vector<int32_t>& sources : alternative.sources) {
    passes.push_back(PassNames(sources));
  }
  for (const Site& site : alternative.sites) {
    // Uses of the value may now read different inner alternatives: add one site
    // for each of these.
    std::vector<std::pair<HloInstruction*, HloInstruction*>> sites;
    for (const Use& use : site.uses) {
      HloInstruction* now = result->Read(use);
      auto it =
          std::find_if(sites.begin(), sites.end(),
                       [now](const auto& entry) { return entry.first == now; });
      if (it == sites.end()) {
        std::vector<HloInstruction*> choices = {now};
        for (int32_t node : site.nodes) choices.push_back(result->Get(node));
        HloInstruction* added = now->parent()->AddInstruction(MakeAlternative(
            choices, number, AlternativeKindName(alternative.kind), passes));
        it = sites.insert(sites.end(), {now, added});
      }
      HLOENV_RETURN_IF_ERROR(result->Rewire(use, it->second));
    }
  }
  return absl::OkStatus();
}

absl::Status Capture::BuildGraph(BuiltGraph* graph) const {
  Materializer result(module_, nodes_);
  for (const Alternative& alternative : alternatives_) {
    for (const Site& site : alternative.sites) {
      for (int32_t node : site.nodes) result.Need(node);
    }
  }
  HLOENV_RETURN_IF_ERROR(result.BuildNeeded());
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    HLOENV_RETURN_IF_ERROR(AddAlternative(static_cast<int64_t>(a), &result));
  }
  graph->instructions.assign(nodes_.size(), nullptr);
  for (int32_t node = 0; node < nodes_.size(); ++node) {
    // FindImage is null in computations without callers.
    graph->instructions[node] =
        nodes_.IsOriginal(node) ? result.FindImage(node) : result.Get(node);
    if (nodes_.IsOriginal(node)) {
      graph->originals.insert(graph->instructions[node]);
    }
  }
  graph->module.emplace(result.Take());
  return absl::OkStatus();
}

absl::StatusOr<const Capture::BuiltGraph*> Capture::GetGraph() const {
  std::lock_guard<std::mutex> lock(graph_mutex_);
  if (!graph_.has_value()) {
    BuiltGraph graph;
    absl::Status status = BuildGraph(&graph);
    if (status.ok()) {
      graph_.emplace(std::move(graph));
    } else {
      graph_.emplace(status);
    }
  }
  if (!graph_->ok()) return graph_->status();
  return &**graph_;
}

absl::StatusOr<Module> Capture::Graph() const {
  HLOENV_ASSIGN_OR_RETURN(const BuiltGraph* graph, GetGraph());
  return *graph->module;
}

}  // namespace hloenv
