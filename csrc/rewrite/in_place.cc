// SPDX-License-Identifier: Apache-2.0
#include "rewrite/in_place.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Whether the two instructions give equal values for equal operands. The values
// of bitcasts and custom calls depend on layouts.
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

class NewValueFinder {
 public:
  explicit NewValueFinder(const ChangedComputation& changed)
      : changed_(changed),
        original_(changed.analysis.index.computations()[changed.number]),
        first_(changed.analysis.index.First(original_)) {}

  std::vector<int32_t> Run() {
    if (changed_.doubtful.empty() && !HasChangesInPlace()) return {};
    Classify();
    if (may_differ_.empty() && changed_.doubtful.empty()) return {};
    FindVerified();
    return FindNewValues();
  }

 private:
  enum class Kind : uint8_t {
    kSurvivor,   // unchanged but for its operands
    kSameValue,  // changed in place, but not in its value
    kMayDiffer,  // changed in place, perhaps in its value
  };
  struct Node {
    int32_t number;
    Kind kind;
    bool is_verified = false;    // unchanged path to an output
    bool has_new_value = false;  // may have a new value
  };

  bool HasChangesInPlace() const;
  absl::flat_hash_set<int64_t> ElementsOf(const HloInstruction& image,
                                          const Node& node) const;
  void Classify();
  void FindVerified();
  std::vector<int32_t> FindNewValues();

  const HloInstruction* ImageOf(const HloInstruction* original) const {
    return changed_.image_of[first_ + original->local_id()];
  }
  Node* Find(const HloInstruction* image) {
    auto it = nodes_.find(image);
    return it == nodes_.end() ? nullptr : &it->second;
  }
  // Whether operand `k` of `user` is the image of its original's operand.
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
  // By image. Instructions that the pass added have no node.
  absl::flat_hash_map<const HloInstruction*, Node> nodes_;
  std::vector<const HloInstruction*> may_differ_;
};

bool NewValueFinder::HasChangesInPlace() const {
  return absl::c_any_of(
      original_->instructions(), [this](const HloInstruction* instruction) {
        const int32_t i = first_ + instruction->local_id();
        return changed_.analysis.is_live[i] != 0 && changed_.survives[i] == 0 &&
               changed_.image_of[i] != nullptr;
      });
}

void NewValueFinder::Classify() {
  for (const HloInstruction* instruction :
       original_->MakeInstructionPostOrder()) {
    const int32_t i = first_ + instruction->local_id();
    const HloInstruction* image = changed_.image_of[i];
    if (changed_.analysis.is_live[i] == 0 || image == nullptr) continue;
    Kind kind = Kind::kSurvivor;
    if (changed_.survives[i] == 0) {
      bool is_same_value =
          ComputesTheSame(*instruction, *image, changed_.same_computation);
      for (int64_t k = 0; is_same_value && k < image->operand_count(); ++k) {
        const HloInstruction* operand = image->operand(k);
        const Node* node = Find(operand);
        is_same_value = operand == ImageOf(instruction->operand(k)) &&
                        node != nullptr && node->kind != Kind::kMayDiffer;
      }
      kind = is_same_value ? Kind::kSameValue : Kind::kMayDiffer;
      if (!is_same_value) may_differ_.push_back(image);
    }
    nodes_[image] = {i, kind};
  }
}

// The elements of a tuple that are read, before the pass or after it; -1 if a
// user other than get-tuple-element reads the tuple.
absl::flat_hash_set<int64_t> NewValueFinder::ElementsOf(
    const HloInstruction& image, const Node& node) const {
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

// Visits operands that were not rewired, from the root and the effects on.
void NewValueFinder::FindVerified() {
  std::vector<const HloInstruction*> stack;
  // Elements that are not verified yet, of tuples that were changed in place.
  absl::flat_hash_map<const HloInstruction*, absl::flat_hash_set<int64_t>> left;
  const auto show = [&](const HloInstruction* image,
                        const HloInstruction* reader) {
    Node* node = Find(image);
    if (node == nullptr || node->is_verified) return;
    if (node->kind == Kind::kMayDiffer && reader != nullptr &&
        reader->opcode() == HloOpcode::kGetTupleElement) {
      const auto [elements, is_new] = left.try_emplace(image);
      if (is_new) elements->second = ElementsOf(*image, *node);
      elements->second.erase(reader->tuple_index());
      if (!elements->second.empty()) return;
    }
    node->is_verified = true;
    // Changes of its operands may compensate that of a kMayDiffer instruction.
    if (node->kind != Kind::kMayDiffer) stack.push_back(image);
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

// Visits users from unverified kMayDiffer instructions on, up to verified ones.
std::vector<int32_t> NewValueFinder::FindNewValues() {
  std::vector<int32_t> result;
  std::vector<const HloInstruction*> stack;
  absl::flat_hash_set<const HloInstruction*> added;
  const auto reach = [&](const HloInstruction* user, Node* node) {
    if (node->kind == Kind::kMayDiffer || node->is_verified ||
        node->has_new_value)
      return;
    node->has_new_value = true;
    if (node->kind == Kind::kSurvivor) result.push_back(node->number);
    stack.push_back(user);
  };
  for (const HloInstruction* image : may_differ_) {
    if (!nodes_.at(image).is_verified) stack.push_back(image);
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

std::vector<int32_t> SurvivorsWithNewValue(const ChangedComputation& changed) {
  return NewValueFinder(changed).Run();
}

}  // namespace hloenv
