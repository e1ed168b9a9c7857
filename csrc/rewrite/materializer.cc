// SPDX-License-Identifier: Apache-2.0
#include "rewrite/materializer.h"

#include "rewrite/source.h"
#include "support/status.h"

namespace hloenv {

using xla::HloCloneContext;
using xla::HloInstruction;
using xla::HloModule;

Materializer::Materializer(const Module& original, const NodeTable& nodes,
                           HloModule* module,
                           std::unique_ptr<HloCloneContext> images)
    : original_(original),
      nodes_(nodes),
      hlo_(module),
      images_(std::move(images)),
      built_(nodes.size() - nodes.num_originals(), nullptr),
      needed_(nodes.size() - nodes.num_originals(), 0) {}

Materializer::Materializer(const Module& original, const NodeTable& nodes)
    : Materializer(original, nodes, /*module=*/nullptr, /*images=*/nullptr) {
  auto [clone, context] = original.hlo().CloneWithContext(/*suffix=*/"");
  owned_ = std::move(clone);
  hlo_ = owned_.get();
  images_ = std::move(context);
}

void Materializer::Need(int32_t node) {
  if (nodes_.IsOriginal(node)) return;
  std::vector<int32_t> stack = {node};
  while (!stack.empty()) {
    const int32_t top = stack.back();
    stack.pop_back();
    if (nodes_.IsOriginal(top)) continue;
    uint8_t& mark = needed_[top - nodes_.num_originals()];
    if (mark != 0) continue;
    mark = 1;
    for (int32_t operand : nodes_.OperandsOf(top)) stack.push_back(operand);
  }
}

absl::Status Materializer::BuildNeeded() {
  for (size_t i = 0; i < needed_.size(); ++i) {
    // A proposal builds all of its nodes at once.
    if (needed_[i] == 0 || built_[i] != nullptr) continue;
    const NodeTable::NewNode& node =
        nodes_.at(nodes_.num_originals() + static_cast<int32_t>(i));
    HLOENV_RETURN_IF_ERROR(node.source->Build(node.local, this));
  }
  return absl::OkStatus();
}

const HloInstruction* Materializer::FindImage(int32_t original) const {
  const HloInstruction* instruction = original_.analysis().index.at(original);
  return instruction == nullptr ? nullptr
                                : images_->FindInstruction(instruction);
}

HloInstruction* Materializer::Read(const Use& use) const {
  return use.user == Use::kRoot
             ? ComputationImage(use.computation)->root_instruction()
             : Get(use.user)->mutable_operand(use.operand);
}

absl::Status Materializer::Rewire(const Use& use, HloInstruction* value) {
  if (use.user == Use::kRoot) {
    ComputationImage(use.computation)->set_root_instruction(value);
    return absl::OkStatus();
  }
  return Get(use.user)->ReplaceOperandWith(use.operand, value);
}

HloCloneContext* Materializer::ContextOf(
    const RewriteSource* source,
    absl::FunctionRef<void(HloCloneContext*)> map) {
  std::unique_ptr<HloCloneContext>& context = contexts_[source];
  if (context == nullptr) {
    context = std::make_unique<HloCloneContext>(hlo_, /*suffix=*/"");
    map(context.get());
  }
  return context.get();
}

}  // namespace hloenv
