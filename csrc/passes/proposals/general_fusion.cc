// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "hlo/self_comparison.h"
#include "hlo/value_flow.h"
#include "passes/proposals/fusion_rules.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/rules.h"
#include "support/status.h"

namespace hloenv {

namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

// With more reductions in one loop, LLVM needs minutes to compile their loads;
// XLA's CPU fusion has the same limit.
constexpr int64_t kMaxReductions = 6;
// Maximum distance in post order of users of one operand that are paired as
// siblings.
constexpr size_t kMaxSiblingDistance = 8;

// A fusion to propose. `last` is the consumer and a result; with two results,
// `first` is a result too.
struct Group {
  const HloInstruction* first;
  const HloInstruction* last;
  HloInstruction::FusionKind kind;
  bool two_results;

  // The addend of an output fusion must be an operand of the fusion.
  bool TakesIn(const HloInstruction& operand) const {
    return kind == HloInstruction::FusionKind::kLoop &&
           IsScalarConstant(operand);
  }

  std::vector<const HloInstruction*> Reads() const {
    std::vector<const HloInstruction*> reads;
    absl::flat_hash_set<const HloInstruction*> seen = {first};
    for (const HloInstruction* member : {last, first}) {
      for (const HloInstruction* operand : member->operands()) {
        if (!TakesIn(*operand) && seen.insert(operand).second) {
          reads.push_back(operand);
        }
      }
    }
    return reads;
  }
};

// Builds the fused computation of a group of the analysed module in a clone of
// that module.
class FusedComputation {
 public:
  FusedComputation(const Group& group, HloModule* target)
      : group_(group), target_(target), context_(target, /*suffix=*/"") {}

  HloComputation* Build(absl::Span<const HloInstruction* const> reads) {
    for (size_t i = 0; i < reads.size(); ++i) {
      inside_[reads[i]] =
          builder_.AddInstruction(HloInstruction::CreateParameter(
              i, reads[i]->shape(), absl::StrCat("param_", i)));
    }
    AddMember(*group_.first);
    AddMember(*group_.last);
    HloInstruction* root = inside_.at(group_.last);
    if (group_.two_results) {
      root = builder_.AddInstruction(
          HloInstruction::CreateTuple({root, inside_.at(group_.first)}));
    }
    return target_->AddEmbeddedComputation(builder_.Build(root));
  }

 private:
  void AddMember(const HloInstruction& member) {
    for (const HloInstruction* operand : member.operands()) {
      if (group_.TakesIn(*operand) && !inside_.contains(operand)) Add(*operand);
    }
    if (member.opcode() != HloOpcode::kFusion) {
      Add(member);
      return;
    }
    const HloComputation* fused = member.fused_instructions_computation();
    for (const HloInstruction* instruction :
         fused->MakeInstructionPostOrder()) {
      if (instruction->opcode() == HloOpcode::kParameter) {
        inside_[instruction] =
            inside_.at(member.operand(instruction->parameter_number()));
      } else {
        Add(*instruction);
      }
    }
    inside_[&member] = inside_.at(fused->root_instruction());
  }

  void Add(const HloInstruction& instruction) {
    std::vector<HloInstruction*> operands;
    for (const HloInstruction* operand : instruction.operands()) {
      operands.push_back(inside_.at(operand));
    }
    for (const HloComputation* callee : instruction.called_computations()) {
      UseCopyInTarget(*callee);
    }
    inside_[&instruction] =
        builder_.AddInstruction(instruction.CloneWithNewOperands(
            instruction.shape(), operands, &context_));
  }

  // Clones of a module have computations with the same names. If one was
  // removed or changed, cloning the caller adds a new one.
  void UseCopyInTarget(const HloComputation& callee) {
    if (callee.parent() == target_ ||
        context_.FindComputation(&callee) != nullptr) {
      return;
    }
    HloComputation* copy = target_->GetComputationWithName(callee.name());
    if (copy != nullptr && *copy == callee) {
      context_.MapComputation(&callee, copy);
    }
  }

  const Group& group_;
  HloModule* target_;
  xla::HloCloneContext context_;
  HloComputation::Builder builder_{"fused_computation"};
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> inside_;
};

absl::StatusOr<std::vector<HloInstruction*>> BuildFusion(
    const Group& group, absl::Span<const HloInstruction* const> reads,
    ImageOf image) {
  std::vector<HloInstruction*> operands;
  for (const HloInstruction* read : reads) {
    operands.push_back(image(read));
    if (operands.back()->shape() != read->shape()) {
      return Error(kPassError,
                   absl::StrCat("the copy of '", read->name(),
                                "' has another shape than the original"));
    }
  }
  HloComputation* computation = operands.front()->parent();
  HloComputation* fused =
      FusedComputation(group, computation->parent()).Build(reads);
  HloInstruction* fusion =
      computation->AddInstruction(HloInstruction::CreateFusion(
          fused->root_instruction()->shape(), group.kind, operands, fused));
  fusion->set_called_computations_execution_thread(
      computation->execution_thread());
  if (!group.two_results) {
    group.last->SetupDerivedInstruction(fusion);
    return std::vector<HloInstruction*>{fusion};
  }
  std::vector<HloInstruction*> results;
  for (const HloInstruction* original : {group.last, group.first}) {
    results.push_back(
        computation->AddInstruction(HloInstruction::CreateGetTupleElement(
            original->shape(), fusion, results.size())));
    original->SetupDerivedInstruction(results.back());
  }
  return results;
}

// Users of a producer up to which it is proposed as a result too, and operands
// of a fusion: each choice repeats them, in a graph of all choices.
constexpr int64_t kMaxUsers = 64;
constexpr size_t kMaxReads = 128;

// Finds the groups of one computation.
class GroupFinder {
 public:
  GroupFinder(const HloComputation& computation, int64_t max_size,
              bool duplicate)
      : max_size_(max_size), duplicate_(duplicate), dependence_(computation) {}

  void AddPairs(std::vector<Group>* groups) {
    ForEachPair(
        [&](const HloInstruction& producer, const HloInstruction& consumer) {
          if (!duplicate_ && producer.user_count() > 1) return;
          if (CanFuseIntoOutput(producer, consumer)) {
            groups->push_back({&producer, &consumer,
                               HloInstruction::FusionKind::kOutput,
                               /*two_results=*/false});
          } else if (CanFuseIntoLoop(producer, consumer)) {
            groups->push_back({&producer, &consumer,
                               HloInstruction::FusionKind::kLoop,
                               /*two_results=*/false});
          }
        });
  }

  // A producer with one user does not need to be a result.
  void AddMultiOutputPairs(std::vector<Group>* groups) {
    ForEachPair([&](const HloInstruction& producer,
                    const HloInstruction& consumer) {
      if (producer.user_count() < 2 || !CanFuseIntoLoop(producer, consumer) ||
          !CanShareLoop(producer, consumer) ||
          ReachesAroundEdge(producer, consumer)) {
        return;
      }
      groups->push_back({&producer, &consumer,
                         HloInstruction::FusionKind::kLoop,
                         /*two_results=*/true});
    });
  }

  void AddSiblings(std::vector<Group>* groups) {
    absl::flat_hash_set<std::pair<const HloInstruction*, const HloInstruction*>>
        seen;
    for (const HloInstruction* operand : dependence_.post_order()) {
      if (operand->user_count() < 2 || !operand->shape().IsArray() ||
          IsScalarConstant(*operand)) {
        continue;
      }
      const std::vector<const HloInstruction*> users =
          dependence_.UsersInOrder(*operand);
      for (size_t j = 1; j < users.size(); ++j) {
        for (size_t i = j - std::min(j, kMaxSiblingDistance); i < j; ++i) {
          const HloInstruction& first = *users[i];
          const HloInstruction& last = *users[j];
          if (CanShareLoop(first, last) && IsSmallEnough(first, last) &&
              seen.insert({&first, &last}).second &&
              !dependence_.Reaches(first, last)) {
            groups->push_back({&first, &last, HloInstruction::FusionKind::kLoop,
                               /*two_results=*/true});
          }
        }
      }
    }
  }

 private:
  // Visits each pair once, consumers in post order, producers in operand order.
  void ForEachPair(absl::FunctionRef<void(const HloInstruction& producer,
                                          const HloInstruction& consumer)>
                       visit) {
    for (const HloInstruction* consumer : dependence_.post_order()) {
      if (consumer->opcode() == HloOpcode::kTuple) continue;
      absl::flat_hash_set<const HloInstruction*> seen;
      for (const HloInstruction* producer : consumer->operands()) {
        if (producer->opcode() != HloOpcode::kParameter &&
            producer->opcode() != HloOpcode::kConstant &&
            seen.insert(producer).second &&
            IsSmallEnough(*producer, *consumer)) {
          visit(*producer, *consumer);
        }
      }
    }
  }

  bool IsSmallEnough(const HloInstruction& first,
                     const HloInstruction& last) const {
    return FusedSize(first) + FusedSize(last) <= max_size_ &&
           FusedReductions(first) + FusedReductions(last) <= kMaxReductions;
  }

  // Whether `to` depends on `from` by a path other than the edge between them.
  bool ReachesAroundEdge(const HloInstruction& from, const HloInstruction& to) {
    for (const HloInstruction* operand : to.operands()) {
      if (operand != &from && dependence_.Reaches(from, *operand)) return true;
    }
    return false;
  }

  const int64_t max_size_;
  const bool duplicate_;
  Dependence dependence_;
};

// Whether the two operands of a comparison may be different copies of one value
// after fusing `group`.
bool SplitsComparison(const Group& group, const SelfComparisons& comparisons) {
  SelfComparisons::Instructions copied;
  for (const HloInstruction* member : {group.first, group.last}) {
    if (member->opcode() == HloOpcode::kFusion) {
      copied.insert(member->fused_instructions().begin(),
                    member->fused_instructions().end());
    } else {
      copied.insert(member);
    }
  }
  SelfComparisons::Instructions replaced;
  for (const HloInstruction* result : ResultsOf(*group.last)) {
    replaced.insert(result);
  }
  if (group.two_results) replaced.insert(&ComputedBy(*group.first));
  return comparisons.MaySplit(copied, replaced);
}

class GeneralFusion : public CandidatePass {
 public:
  explicit GeneralFusion(const Options& options)
      : duplicate_(options.Bool("duplicate")),
        duplicate_compared_(options.Bool("duplicate_compared")),
        max_fusion_size_(options.Int("max_fusion_size")),
        multi_output_(options.Bool("multi_output")),
        siblings_(options.Bool("siblings")) {}

  absl::string_view name() const override { return "general-fusion"; }

  absl::StatusOr<std::vector<Proposal>> Propose(
      const HloModule& module) const override {
    std::vector<Group> groups;
    std::vector<Group> multi_output_groups;
    for (const HloComputation* computation : RewritableComputations(module)) {
      GroupFinder finder(*computation, max_fusion_size_, duplicate_);
      finder.AddPairs(&groups);
      if (multi_output_) finder.AddMultiOutputPairs(&multi_output_groups);
      if (siblings_) finder.AddSiblings(&multi_output_groups);
    }
    groups.insert(groups.end(), multi_output_groups.begin(),
                  multi_output_groups.end());
    const SelfComparisons comparisons(module);
    std::vector<Proposal> proposals;
    for (const Group& group : groups) {
      if (group.two_results && group.first->user_count() > kMaxUsers) continue;
      if (!duplicate_compared_ && SplitsComparison(group, comparisons)) {
        continue;
      }
      Proposal proposal;
      proposal.reads = group.Reads();
      // constant_folding handles groups with only constant operands.
      if (proposal.reads.empty() || proposal.reads.size() > kMaxReads ||
          MayReadOneBufferTwice(proposal.reads)) {
        continue;
      }
      proposal.originals = {group.last};
      if (group.two_results) proposal.originals.push_back(group.first);
      proposal.build = [group, reads = proposal.reads](ImageOf image) {
        return BuildFusion(group, reads, image);
      };
      proposals.push_back(std::move(proposal));
    }
    return proposals;
  }

 private:
  const bool duplicate_;
  const bool duplicate_compared_;
  const int64_t max_fusion_size_;
  const bool multi_output_;
  const bool siblings_;
};

}  // namespace

PassInfo GeneralFusionPass() {
  return {
      "general-fusion",
      "hloenv::GeneralFusion",
      "Proposes every fusion of a producer into a consumer that the CPU "
      "backend can compile, profitable or not, each as a separate choice, and "
      "multi-output fusions of pairs; none of more than 128 operands, and no "
      "value of more than 64 users as a further result. Run it where XLA's CPU "
      "compiler fuses: "
      "after layout assignment, before copy-insertion.",
      {{"duplicate", true,
        "Also propose to copy a producer that has other users, which keep the "
        "original."},
       {"duplicate_compared", false,
        "Also propose copies of a value that the module compares with a value "
        "selected from it, as in x == max(x), which gradients of maximum "
        "contain. Copies may round differently, so the comparison may fail."},
       {"max_fusion_size",
        int64_t{128},
        "Maximum number of instructions in one fusion, without parameters and "
        "constants.",
        {},
        /*minimum=*/2},
       {"multi_output", true,
        "Also propose to fuse a producer that has other users into a consumer "
        "of equal shape, with both as results."},
       {"siblings", false,
        "Also propose pairs of equal shape that read the same array, with both "
        "as results."}},
      /*make=*/nullptr,
      [](const Options& options) -> std::unique_ptr<CandidatePass> {
        return std::make_unique<GeneralFusion>(options);
      }};
}

}  // namespace hloenv
