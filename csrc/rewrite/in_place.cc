// SPDX-License-Identifier: Apache-2.0
#include "rewrite/in_place.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Whether equal operands give equal values. Layouts are part of what a bitcast
// or a custom call computes.
bool ComputesTheSame(
    const HloInstruction& a, const HloInstruction& b,
    absl::FunctionRef<bool(const HloComputation*, const HloComputation*)>
        same_computation) {
  if (a.opcode() != b.opcode() || a.operand_count() != b.operand_count()) {
    return false;
  }
  const bool needs_layout =
      a.opcode() == HloOpcode::kBitcast || a.opcode() == HloOpcode::kCustomCall;
  if (needs_layout ? a.shape() != b.shape()
                   : !xla::ShapeUtil::Compatible(a.shape(), b.shape())) {
    return false;
  }
  if (a.called_computations().empty()) return a.SameOp(b);
  const auto any = [](const HloInstruction*, const HloInstruction*) {
    return true;
  };
  return a.Identical(b, any, same_computation, /*layout_sensitive=*/false);
}

class Search {
 public:
  explicit Search(const ChangedComputation& changed)
      : changed_(changed),
        original_(changed.analysis.index.computations()[changed.number]),
        first_(changed.analysis.index.First(original_)) {}

  std::vector<int32_t> Run() {
    if (changed_.doubtful.empty() && !HasChangesInPlace()) return {};
    Classify();
    if (active_.empty() && changed_.doubtful.empty()) return {};
    FindShown();
    return Spread();
  }

 private:
  enum class Kind : uint8_t {
    kSurvivor,  // unchanged but for its operands
    kPassive,   // changed in nothing that makes its value
    kActive,    // changed in place, and perhaps in its value
  };
  struct Node {
    int32_t number;
    Kind kind;
    bool is_shown = false;  // unchanged instructions lead from it to an output
    bool is_other = false;  // its value may be the pass's own
  };

  bool HasChangesInPlace() const;
  absl::flat_hash_set<int64_t> ElementsOf(const HloInstruction& image,
                                          const Node& node) const;
  void Classify();
  void FindShown();
  std::vector<int32_t> Spread();

  const HloInstruction* ImageOf(const HloInstruction* original) const {
    return changed_.image_of[first_ + original->local_id()];
  }
  Node* Find(const HloInstruction* image) {
    auto it = nodes_.find(image);
    return it == nodes_.end() ? nullptr : &it->second;
  }
  // Whether `user`, an image, reads at `k` what its original reads there.
  bool ReadsTheSame(const Node& user, int64_t k) const {
    return !changed_.rewired.contains({user.number, k});
  }
  bool IsRoot(const HloInstruction* image, const Node& node) const {
    return image == changed_.image->root_instruction() &&
           changed_.analysis.index.at(node.number) ==
               original_->root_instruction();
  }

  const ChangedComputation& changed_;
  const HloComputation* original_;
  const int32_t first_;
  // By image. What the pass added has no node.
  absl::flat_hash_map<const HloInstruction*, Node> nodes_;
  std::vector<const HloInstruction*> active_;
};

bool Search::HasChangesInPlace() const {
  return absl::c_any_of(
      original_->instructions(), [this](const HloInstruction* instruction) {
        const int32_t i = first_ + instruction->local_id();
        return changed_.analysis.is_live[i] != 0 && changed_.survives[i] == 0 &&
               changed_.image_of[i] != nullptr;
      });
}

void Search::Classify() {
  for (const HloInstruction* instruction :
       original_->MakeInstructionPostOrder()) {
    const int32_t i = first_ + instruction->local_id();
    const HloInstruction* image = changed_.image_of[i];
    if (changed_.analysis.is_live[i] == 0 || image == nullptr) continue;
    Kind kind = Kind::kSurvivor;
    if (changed_.survives[i] == 0) {
      bool is_passive =
          ComputesTheSame(*instruction, *image, changed_.same_computation);
      for (int64_t k = 0; is_passive && k < image->operand_count(); ++k) {
        const HloInstruction* operand = image->operand(k);
        const Node* node = Find(operand);
        is_passive = operand == ImageOf(instruction->operand(k)) &&
                     node != nullptr && node->kind != Kind::kActive;
      }
      kind = is_passive ? Kind::kPassive : Kind::kActive;
      if (!is_passive) active_.push_back(image);
    }
    nodes_[image] = {i, kind};
  }
}

// The elements of a tuple that are read, before the pass or after it; -1 where
// it is read as a whole.
absl::flat_hash_set<int64_t> Search::ElementsOf(const HloInstruction& image,
                                                const Node& node) const {
  absl::flat_hash_set<int64_t> elements;
  const auto add = [&elements](const HloInstruction& user) {
    if (user.user_count() == 0 && !user.IsRoot()) return;
    elements.insert(
        user.opcode() == HloOpcode::kGetTupleElement ? user.tuple_index() : -1);
  };
  for (const HloInstruction* user : image.users()) add(*user);
  for (const HloInstruction* user :
       changed_.analysis.index.at(node.number)->users()) {
    if (changed_.analysis.is_live[first_ + user->local_id()] != 0) add(*user);
  }
  return elements;
}

// From the root and the effects back through operands that were not exchanged.
void Search::FindShown() {
  std::vector<const HloInstruction*> stack;
  // Of tuples that were changed in place: elements that are not shown yet.
  absl::flat_hash_map<const HloInstruction*, absl::flat_hash_set<int64_t>> left;
  const auto show = [&](const HloInstruction* image,
                        const HloInstruction* reader) {
    Node* node = Find(image);
    if (node == nullptr || node->is_shown) return;
    if (node->kind == Kind::kActive && reader != nullptr &&
        reader->opcode() == HloOpcode::kGetTupleElement) {
      const auto [elements, is_new] = left.try_emplace(image);
      if (is_new) elements->second = ElementsOf(*image, *node);
      elements->second.erase(reader->tuple_index());
      if (!elements->second.empty()) return;
    }
    node->is_shown = true;
    // What is behind an active instruction may make up for its change.
    if (node->kind != Kind::kActive) stack.push_back(image);
  };
  for (const auto& [image, node] : nodes_) {
    if (IsRoot(image, node) ||
        std::binary_search(changed_.analysis.effects.begin(),
                           changed_.analysis.effects.end(), node.number)) {
      show(image, /*reader=*/nullptr);
    }
  }
  while (!stack.empty()) {
    const HloInstruction* image = stack.back();
    stack.pop_back();
    const Node node = nodes_.at(image);
    for (int64_t k = 0; k < image->operand_count(); ++k) {
      if (ReadsTheSame(node, k)) show(image->operand(k), image);
    }
  }
}

// From what is active and not shown on through all that reads it, up to what is
// shown.
std::vector<int32_t> Search::Spread() {
  std::vector<int32_t> result;
  std::vector<const HloInstruction*> stack;
  absl::flat_hash_set<const HloInstruction*> added;
  const auto reach = [&](const HloInstruction* user, Node* node) {
    if (node->kind == Kind::kActive || node->is_shown || node->is_other) return;
    node->is_other = true;
    if (node->kind == Kind::kSurvivor) result.push_back(node->number);
    stack.push_back(user);
  };
  for (const HloInstruction* image : active_) {
    if (!nodes_.at(image).is_shown) stack.push_back(image);
  }
  for (int32_t number : changed_.doubtful) {
    const HloInstruction* image = changed_.image_of[number];
    reach(image, &nodes_.at(image));
  }
  while (!stack.empty()) {
    const HloInstruction* image = stack.back();
    stack.pop_back();
    for (const HloInstruction* user : image->users()) {
      Node* node = Find(user);
      if (node == nullptr) {
        if (added.insert(user).second) stack.push_back(user);
        continue;
      }
      reach(user, node);
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

std::vector<int32_t> SurvivorsOfOtherValue(const ChangedComputation& changed) {
  return Search(changed).Run();
}

}  // namespace hloenv
