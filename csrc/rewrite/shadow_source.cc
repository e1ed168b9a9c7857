// SPDX-License-Identifier: Apache-2.0
#include "rewrite/shadow_source.h"

#include <functional>

#include "absl/container/inlined_vector.h"
#include "hlo/fingerprint.h"
#include "hlo/value_flow.h"
#include "rewrite/equivalence.h"
#include "rewrite/materializer.h"

namespace hloenv {
namespace {

using xla::HloCloneContext;
using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Why no replacement may contain `added`; empty if it may.
std::string WhyIndivisible(const HloInstruction& added) {
  if (added.opcode() == HloOpcode::kParameter) return "it adds a parameter";
  if (added.HasSideEffect()) {
    return absl::StrCat("it adds '", added.name(),
                        "', which has side effects that must happen "
                        "exactly once");
  }
  if (added.HasControlDependencies()) {
    return absl::StrCat("it adds '", added.name(),
                        "', which has control dependencies");
  }
  return "";
}

bool IsCalledOnce(const HloComputation& computation) {
  const auto& callers = computation.caller_computations();
  return callers.size() == 1 && callers.begin()->second == 1;
}

}  // namespace

ShadowSource::ShadowSource(int32_t number, int32_t pass,
                           std::vector<std::string> xla_passes,
                           std::unique_ptr<Shadow> shadow)
    : RewriteSource(number, pass, std::move(xla_passes)),
      shadow_(std::move(shadow)) {
  set_indivisible_reason(shadow_->indivisible_reason());
}

const HloComputation* ShadowSource::CalledOrigin(
    const HloComputation* computation) const {
  if (computation->IsFusionComputation() || computation->IsAsyncComputation()) {
    return nullptr;
  }
  return shadow_->OriginOf(computation);
}

void ShadowSource::NumberNodes(NodeTable* nodes, EqualNodes* equal_nodes) {
  set_first_node(nodes->size());
  node_of_.clear();
  instructions_.clear();
  if (is_indivisible()) return;
  std::string reason = NumberBelowRewiredUses(nodes, equal_nodes);
  if (reason.empty()) return;
  set_indivisible_reason(std::move(reason));
  nodes->Truncate(NodeAt(0));
  equal_nodes->Clear();  // may contain removed nodes
}

// Numbers the new instructions below the rewired uses, operands first. Returns
// the reason if that is not possible, else an empty string.
//
//   module                        shadow of algsimp
//   p = f32[] parameter(0)        p
//   two = f32[] constant(2)       half = f32[] constant(0.5)
//   d = f32[] divide(p, two)      m = f32[] multiply(p, half)
//   ROOT n = f32[] negate(d)      ROOT n = f32[] negate(m)
//
// Operand 0 of n is rewired from d to m. Below m are p, which is an original,
// and half and m itself, which are new and become two nodes in this order. So
// the original module with half and m added, and with n reading m, computes the
// same value for n as the shadow. Other new instructions of the shadow belong
// to other uses, or are dead.
std::string ShadowSource::NumberBelowRewiredUses(NodeTable* nodes,
                                                 EqualNodes* equal_nodes) {
  absl::flat_hash_set<int32_t> taken;
  std::vector<const HloInstruction*> stack;
  for (const RewiredUse& rewired : shadow_->rewired_uses()) {
    stack.push_back(rewired.replacement);
    while (!stack.empty()) {
      const HloInstruction* top = stack.back();
      if (IsNumbered(top)) {
        stack.pop_back();
        continue;
      }
      const size_t depth = stack.size();
      for (auto it = top->operands().rbegin(); it != top->operands().rend();
           ++it) {
        if (!IsNumbered(*it)) stack.push_back(*it);
      }
      if (stack.size() != depth) continue;
      stack.pop_back();
      std::string reason = WhyIndivisible(*top);
      if (!reason.empty()) return reason;
      node_of_[top] = NumberInstruction(top, nodes, equal_nodes, &taken);
    }
  }
  return "";
}

// Numbers a new instruction whose operands are numbered: with the number of an
// equal node of an earlier source, or with the next number.
//
//   algsimp makes              cse makes                  nodes
//   c = f32[] constant(0)      k = f32[] constant(0)      c, and k is c
//   a = f32[] add(p, c)        b = f32[] add(p, k)        a, and b is a
//
// If two passes offer equal replacements for one use, they share one choice. By
// induction over operands, nodes with the same opcode, attributes and operand
// nodes compute the same value, so one of them can represent both. Two
// instructions of one source are not merged (`taken` holds the nodes that are
// in use), because the pass may have kept both on purpose.
int32_t ShadowSource::NumberInstruction(const HloInstruction* instruction,
                                        NodeTable* nodes,
                                        EqualNodes* equal_nodes,
                                        absl::flat_hash_set<int32_t>* taken) {
  if (equal_nodes->has_several_sources()) {
    absl::InlinedVector<int32_t, 8> operands;
    for (const HloInstruction* operand : instruction->operands()) {
      operands.push_back(NodeOf(operand));
    }
    std::vector<EqualNodes::Entry>& same_hash = equal_nodes->WithHash(
        absl::HashOf(instruction->opcode(), instruction->shape(), operands));
    for (const EqualNodes::Entry& entry : same_hash) {
      if (entry.source != this && !taken->contains(entry.node) &&
          IsEqual(*instruction, entry)) {
        taken->insert(entry.node);
        return entry.node;
      }
    }
    same_hash.push_back({nodes->size(), this, instruction});
  }
  instructions_.push_back(instruction);
  return nodes->Add(this, static_cast<int32_t>(instructions_.size()) - 1);
}

// Whether a new instruction equals one that another source numbered. The two
// have the same hash.
bool ShadowSource::IsEqual(const HloInstruction& instruction,
                           const EqualNodes::Entry& other) const {
  const ShadowSource& source = *other.source;
  // Equal nodes without operands, such as constants, may be in different
  // computations.
  if (shadow_->OriginOf(instruction.parent()) !=
      source.shadow_->OriginOf(other.instruction->parent())) {
    return false;
  }
  if (instruction.operand_count() != other.instruction->operand_count()) {
    return false;
  }
  for (int64_t i = 0; i < instruction.operand_count(); ++i) {
    if (NodeOf(instruction.operand(i)) !=
        source.NodeOf(other.instruction->operand(i))) {
      return false;
    }
  }
  // The merged node calls the computations of the other source, so do not merge
  // where that would change which callers share a computation.
  const std::function<bool(const HloComputation*, const HloComputation*)>
      same_computation = [&](const HloComputation* a, const HloComputation* b) {
        const HloComputation* left = CalledOrigin(a);
        const HloComputation* right = source.CalledOrigin(b);
        if (left != nullptr || right != nullptr) return left == right;
        return IsCalledOnce(*a) && IsCalledOnce(*b) &&
               SameGraph(*a, *b, same_computation);
      };
  return SameInstruction(instruction, HasExtras(instruction),
                         *other.instruction, same_computation);
}

void ShadowSource::AddOffers(Offers* offers) const {
  if (is_indivisible()) return;
  for (const RewiredUse& rewired : shadow_->rewired_uses()) {
    offers->single.push_back(
        {rewired.use, rewired.original, NodeOf(rewired.replacement), number()});
  }
}

// Originals that a replacement reads and that depend on that replacement,
// ascending.
std::vector<int32_t> ShadowSource::OriginalsReadIn(const Cycles& cycles) const {
  std::vector<int32_t> originals;
  for (const auto& [instruction, node] : node_of_) {
    if (cycles.component[node] < 0) continue;
    for (const HloInstruction* operand : instruction->operands()) {
      const int32_t origin = shadow_->OriginOf(operand);
      if (origin >= 0 && cycles.Share(node, origin)) {
        originals.push_back(origin);
      }
    }
  }
  for (const RewiredUse& rewired : shadow_->rewired_uses()) {
    const int32_t origin = shadow_->OriginOf(rewired.replacement);
    if (rewired.use.user != Use::kRoot && origin >= 0 &&
        cycles.Share(rewired.use.user, origin)) {
      originals.push_back(origin);
    }
  }
  std::sort(originals.begin(), originals.end());
  originals.erase(std::unique(originals.begin(), originals.end()),
                  originals.end());
  return originals;
}

// Makes replacements read copies of the originals that close a cycle.
//
//   module                       shadow of algsimp, then cse
//   f2 = s32[] not(x)
//   u = s32[] negate(f2)         u = s32[] negate(f1)
//   z = s32[] multiply(u, zero)
//   b = s32[] add(x, z)
//   f1 = s32[] not(b)            f1 = s32[] not(x)
//
// The operand of u is rewired from f2 to f1, and that of f1 from b to x. The
// first without the second closes the cycle u, f1, b, z. So f1 is detached: its
// image counts as new, and u reads a copy of it, not(x), which does not depend
// on the cycle. The copy is the shadow's f1, so each use still reads an equal
// value. This terminates, because each round detaches at least one original.
bool ShadowSource::BreakCycles(Cycles* cycles) {
  if (is_indivisible()) return false;
  const std::vector<int32_t> originals = OriginalsReadIn(*cycles);
  if (originals.empty()) return false;
  const Analysis& analysis = shadow_->analysis();
  for (int32_t original : originals) {
    const HloInstruction* instruction = analysis.index.at(original);
    if (std::binary_search(analysis.effects.begin(), analysis.effects.end(),
                           original) ||
        instruction->HasControlDependencies()) {
      set_indivisible_reason(absl::StrCat(
          "its rewrites would need a second copy of '", instruction->name(),
          "', which has side effects or control dependencies"));
      return true;
    }
    shadow_->Detach(original);
  }
  shadow_->CollectRewiredUses();
  return true;
}

// ProposalSource withdraws the proposal instead.
bool ShadowSource::WithdrawFrom(const Cycles&) { return false; }

// The comparison becomes part of the rewrite.
bool ShadowSource::KeepWhole(int32_t, const std::vector<int32_t>& readers) {
  return !is_indivisible() && shadow_->DetachAll(readers);
}

std::vector<int32_t> ShadowSource::OperandsOf(int32_t local) const {
  std::vector<int32_t> operands;
  for (const HloInstruction* operand : instructions_[local]->operands()) {
    operands.push_back(NodeOf(operand));
  }
  return operands;
}

bool ShadowSource::IsFusion(int32_t local) const {
  return IsOfFusion(*instructions_[local]);
}

std::string ShadowSource::KernelOf(int32_t local) const {
  return FingerprintKernel(*instructions_[local]);
}

absl::string_view ShadowSource::RuleOf(int32_t) const { return ""; }

void ShadowSource::VisitCalled(
    int32_t local, absl::flat_hash_set<const HloComputation*>* seen,
    absl::FunctionRef<void(const HloComputation*)> visit) const {
  const auto& called = instructions_[local]->called_computations();
  std::vector<const HloComputation*> stack(called.begin(), called.end());
  while (!stack.empty()) {
    const HloComputation* top = stack.back();
    stack.pop_back();
    if (const HloComputation* origin = CalledOrigin(top)) {
      visit(origin);
      continue;
    }
    if (!seen->insert(top).second) continue;
    for (const HloInstruction* inner : top->instructions()) {
      stack.insert(stack.end(), inner->called_computations().begin(),
                   inner->called_computations().end());
    }
  }
}

// New instructions call the images of originals; only new computations are
// cloned, each once.
void ShadowSource::MapComputations(const Materializer& result,
                                   HloCloneContext* context) const {
  for (const HloComputation* computation : shadow_->hlo().computations()) {
    if (const HloComputation* origin = CalledOrigin(computation)) {
      context->MapComputation(computation, result.ImageOf(origin));
    }
  }
}

absl::Status ShadowSource::Build(int32_t local, Materializer* result) const {
  const HloInstruction& instruction = *instructions_[local];
  std::vector<HloInstruction*> operands;
  for (const HloInstruction* operand : instruction.operands()) {
    operands.push_back(result->Get(NodeOf(operand)));
  }
  HloCloneContext* context =
      result->ContextOf(this, [this, result](HloCloneContext* context) {
        MapComputations(*result, context);
      });
  HloComputation* computation =
      result->ImageOf(shadow_->OriginOf(instruction.parent()));
  result->SetBuilt(NodeAt(local),
                   computation->AddInstruction(instruction.CloneWithNewOperands(
                       instruction.shape(), operands, context)));
  return absl::OkStatus();
}

}  // namespace hloenv
