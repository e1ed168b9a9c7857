// SPDX-License-Identifier: Apache-2.0
//
// From a capture to modules: the alternative graph, and the module that a
// decision vector asks for. Both start from a clone of the original and add the
// replacements that are needed.
#include "rewrite/alternative.h"
#include "rewrite/capture.h"
#include "rewrite/prune.h"
#include "support/status.h"

namespace hloenv {

using xla::HloCloneContext;
using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;

// Adds replacements to a clone of the original module.
class Materializer {
 public:
  explicit Materializer(const Capture& capture) : Materializer(capture, {}) {
    auto [clone, context] = capture.module_.hlo().CloneWithContext("");
    owned_ = std::move(clone);
    hlo_ = owned_.get();
    images_ = std::move(context);
  }
  // In place: `images` leads to instructions of `module`.
  Materializer(const Capture& capture, HloModule* module,
               std::unique_ptr<HloCloneContext> images)
      : Materializer(capture, std::move(images)) {
    hlo_ = module;
  }

  HloModule* hlo() { return hlo_; }
  std::unique_ptr<HloModule> Take() { return std::move(owned_); }

  // Marks `node` and all new nodes below it for BuildNeeded.
  void Need(int32_t node) {
    if (capture_.IsOriginal(node)) return;
    std::vector<int32_t> stack = {node};
    while (!stack.empty()) {
      const int32_t top = stack.back();
      stack.pop_back();
      if (capture_.IsOriginal(top)) continue;
      uint8_t& mark = needed_[top - capture_.num_originals()];
      if (mark != 0) continue;
      mark = 1;
      for (int32_t operand : capture_.OperandsOf(top)) stack.push_back(operand);
    }
  }

  // New nodes are numbered operands first, so one sweep builds them.
  absl::Status BuildNeeded() {
    for (size_t i = 0; i < needed_.size(); ++i) {
      if (needed_[i] == 0 || built_[i] != nullptr) continue;
      const auto node = static_cast<int32_t>(capture_.num_originals() + i);
      if (capture_.NewNode(node).instruction != nullptr) {
        built_[i] = BuildFromShadow(node);
      } else {
        HLOENV_RETURN_IF_ERROR(BuildProposal(node));
      }
    }
    return absl::OkStatus();
  }

  HloInstruction* Image(int32_t original) const {
    return images_->GetInstruction(capture_.analysis_->index.at(original));
  }
  // Null for a gap in the numbers and in computations that nothing calls.
  const HloInstruction* FindImage(int32_t original) const {
    const HloInstruction* instruction = capture_.analysis_->index.at(original);
    return instruction == nullptr ? nullptr
                                  : images_->FindInstruction(instruction);
  }
  HloInstruction* Get(int32_t node) const {
    return capture_.IsOriginal(node) ? Image(node)
                                     : built_[node - capture_.num_originals()];
  }
  HloComputation* ComputationImage(int32_t number) const {
    return images_->GetComputation(
        capture_.analysis_->index.computations()[number]);
  }

  HloInstruction* Read(const Use& use) const {
    return use.user == Use::kRoot
               ? ComputationImage(use.computation)->root_instruction()
               : Image(use.user)->mutable_operand(use.operand);
  }
  absl::Status Rewire(const Use& use, HloInstruction* value) {
    if (use.user == Use::kRoot) {
      ComputationImage(use.computation)->set_root_instruction(value);
      return absl::OkStatus();
    }
    return Image(use.user)->ReplaceOperandWith(use.operand, value);
  }

 private:
  Materializer(const Capture& capture, std::unique_ptr<HloCloneContext> images)
      : capture_(capture),
        images_(std::move(images)),
        built_(capture.nodes_.size(), nullptr),
        needed_(capture.nodes_.size(), 0),
        contexts_(capture.passes_.size()) {}

  // Maps the shadow's computations to their images, so that new instructions
  // call those and bring only new computations along, each of them once.
  HloCloneContext* ContextOf(int32_t number) {
    std::unique_ptr<HloCloneContext>& context = contexts_[number];
    if (context == nullptr) {
      context = std::make_unique<HloCloneContext>(hlo_, /*suffix=*/"");
      const Shadow& shadow = *capture_.passes_[number].shadow;
      for (const HloComputation* computation : shadow.hlo().computations()) {
        if (const HloComputation* origin =
                Capture::CalledOrigin(capture_.passes_[number], computation)) {
          context->MapComputation(computation, images_->GetComputation(origin));
        }
      }
    }
    return context.get();
  }

  HloInstruction* BuildFromShadow(int32_t node) {
    const Capture::Node& entry = capture_.NewNode(node);
    const Capture::Pass& pass = capture_.passes_[entry.pass];
    std::vector<HloInstruction*> operands;
    for (const HloInstruction* operand : entry.instruction->operands()) {
      operands.push_back(Get(capture_.NodeOf(pass, operand)));
    }
    HloComputation* computation = images_->GetComputation(
        pass.shadow->OriginOf(entry.instruction->parent()));
    return computation->AddInstruction(entry.instruction->CloneWithNewOperands(
        entry.instruction->shape(), operands, ContextOf(entry.pass)));
  }

  absl::Status BuildProposal(int32_t node) {
    const Capture::Node& entry = capture_.NewNode(node);
    const Capture::Pass& pass = capture_.passes_[entry.pass];
    const Proposal& proposal = pass.proposals[entry.proposal];
    HLOENV_ASSIGN_OR_RETURN(
        std::vector<HloInstruction*> outputs,
        proposal.build([this](const HloInstruction* original) {
          return images_->GetInstruction(original);
        }));
    const int32_t first =
        pass.first_node[entry.proposal] - capture_.num_originals();
    for (size_t o = 0; o < outputs.size(); ++o) built_[first + o] = outputs[o];
    return absl::OkStatus();
  }

  const Capture& capture_;
  std::unique_ptr<HloModule> owned_;  // null in place
  HloModule* hlo_ = nullptr;
  std::unique_ptr<HloCloneContext> images_;
  std::vector<HloInstruction*> built_;                      // by new node
  std::vector<uint8_t> needed_;                             // by new node
  std::vector<std::unique_ptr<HloCloneContext>> contexts_;  // by pass
};

const Shadow* Capture::OwnShadow(absl::Span<const int64_t> decisions) const {
  const bool accepts_any =
      absl::c_any_of(decisions, [](int64_t decision) { return decision > 0; });
  if (!accepts_any) return nullptr;
  for (const Pass& pass : passes_) {
    // The parts of a union share their name.
    const auto has_its_name = [&](const Pass& other) {
      return other.name == pass.name;
    };
    if (pass.shadow == nullptr || absl::c_count_if(passes_, has_its_name) > 1) {
      continue;
    }
    const absl::StatusOr<std::vector<int64_t>> own =
        DecisionsFor(pass_names_[pass.name]);
    if (own.ok() && absl::c_equal(*own, decisions)) return pass.shadow.get();
  }
  return nullptr;
}

absl::StatusOr<Module> Capture::Apply(absl::Span<const int64_t> decisions,
                                      bool rebuild) const {
  HLOENV_RETURN_IF_ERROR(CheckDecisions(decisions, /*partial=*/false));
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (alternatives_[a].kind == AlternativeKind::kPass && decisions[a] > 0) {
      const int32_t pass = alternatives_[a].passes[decisions[a] - 1].front();
      std::unique_ptr<HloModule> whole =
          passes_[pass].shadow->hlo().Clone(/*suffix=*/"");
      HLOENV_RETURN_IF_ERROR(Prune(whole.get()));
      return Module(std::move(whole));
    }
  }
  const Shadow* own = rebuild ? nullptr : OwnShadow(decisions);
  if (own != nullptr) {
    std::unique_ptr<HloModule> clone = own->hlo().Clone(/*suffix=*/"");
    HLOENV_RETURN_IF_ERROR(Prune(clone.get()));
    return Module(std::move(clone));
  }
  Materializer result(*this);
  HLOENV_RETURN_IF_ERROR(Rewrite(decisions, &result));
  return Module(result.Take());
}

absl::Status Capture::ApplyInPlace(
    absl::Span<const int64_t> decisions, HloModule* module,
    std::unique_ptr<HloCloneContext>&& images) const {
  HLOENV_RETURN_IF_ERROR(CheckDecisions(decisions, /*partial=*/false));
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (alternatives_[a].kind == AlternativeKind::kPass && decisions[a] > 0) {
      return Error(kDecisionError,
                   absl::StrCat("alternative ", a,
                                " is a whole pass: accept that alone and take "
                                "just what the pass does elsewhere, or reject "
                                "it"));
    }
  }
  Materializer result(*this, module, std::move(images));
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
  // Later alternatives are the outer ones where two replace one value.
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (decisions[a] == 0) continue;
    for (const Site& site : alternatives_[a].sites) {
      HloInstruction* value = result->Get(site.nodes[decisions[a] - 1]);
      for (const Use& use : site.uses) {
        HLOENV_RETURN_IF_ERROR(result->Rewire(use, value));
      }
    }
  }
  return Prune(result->hlo());
}

absl::Status Capture::BuildGraph(BuiltGraph* graph) const {
  Materializer result(*this);
  for (const Alternative& alternative : alternatives_) {
    for (const Site& site : alternative.sites) {
      for (int32_t node : site.nodes) result.Need(node);
    }
  }
  HLOENV_RETURN_IF_ERROR(result.BuildNeeded());
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    const Alternative& alternative = alternatives_[a];
    std::vector<std::vector<std::string>> passes;
    for (const std::vector<int32_t>& list : alternative.passes) {
      passes.push_back(PassNames(list));
    }
    for (const Site& site : alternative.sites) {
      // Uses may read different inner alternatives of the same value by now:
      // one site for each of them.
      std::vector<std::pair<HloInstruction*, HloInstruction*>> sites;
      for (const Use& use : site.uses) {
        HloInstruction* now = result.Read(use);
        auto it = std::find_if(
            sites.begin(), sites.end(),
            [now](const auto& entry) { return entry.first == now; });
        if (it == sites.end()) {
          std::vector<HloInstruction*> choices = {now};
          for (int32_t node : site.nodes) choices.push_back(result.Get(node));
          HloInstruction* added = now->parent()->AddInstruction(
              MakeAlternative(choices, static_cast<int64_t>(a),
                              AlternativeKindName(alternative.kind), passes));
          it = sites.insert(sites.end(), {now, added});
        }
        HLOENV_RETURN_IF_ERROR(result.Rewire(use, it->second));
      }
    }
  }
  graph->instructions.assign(num_originals() + nodes_.size(), nullptr);
  for (int32_t node = 0;
       node < static_cast<int32_t>(graph->instructions.size()); ++node) {
    // A clone leaves out computations that nothing calls.
    graph->instructions[node] =
        IsOriginal(node) ? result.FindImage(node) : result.Get(node);
    if (IsOriginal(node)) graph->originals.insert(graph->instructions[node]);
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
