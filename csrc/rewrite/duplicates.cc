// SPDX-License-Identifier: Apache-2.0
//
// Finds choices that duplicate a value which the module compares with itself.
//
//   module                            after a fusion of e into c
//   e = f32[8] exponential(x)         e = f32[8] exponential(x)
//   m = f32[] reduce(e), max          m = f32[] reduce(e), max
//   b = f32[8] broadcast(m)           b = f32[8] broadcast(m)
//   c = pred[8] compare(e, b), EQ     c = pred[8] fusion(x, b)  // copies e
//
// The copy of e inside the fusion may be rounded differently than e, from which
// the maximum is picked, so that no element may equal the maximum any more. A
// replacement contains such a copy if a walk of it, in parallel with the
// original and down to a common value, meets the compared value.
#include "hlo/self_comparison.h"
#include "hlo/value_flow.h"
#include "rewrite/alternative.h"
#include "rewrite/capture.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// Finds the originals of which a replacement contains copies, by walking both
// in parallel from a common value.
class CopyFinder {
 public:
  // `originals`: the images of the module's instructions in the alternative
  // graph.
  explicit CopyFinder(
      const absl::flat_hash_set<const HloInstruction*>& originals)
      : originals_(originals) {}

  // `replacement`, in the alternative graph, has the value of `original`.
  void Walk(const HloInstruction& replacement, const HloInstruction& original) {
    std::vector<std::pair<const HloInstruction*, const HloInstruction*>> left =
        {{&replacement, &original}};
    while (!left.empty()) {
      const auto [unresolved, value] = left.back();
      left.pop_back();
      const HloInstruction* copy = NewlyComputedBy(unresolved);
      const HloInstruction& of = ComputedBy(*value);
      if (copy == nullptr || copy->opcode() != of.opcode() ||
          copy->operand_count() != of.operand_count() ||
          !copied_.insert(&of).second) {
        continue;
      }
      for (int64_t i = 0; i < of.operand_count(); ++i) {
        left.push_back({copy->operand(i), of.operand(i)});
      }
    }
  }

  const SelfComparisons::Instructions& copied() const { return copied_; }

 private:
  // As ComputedBy, but null if that reaches an original.
  const HloInstruction* NewlyComputedBy(const HloInstruction* value) const {
    while (true) {
      if (IsAlternative(*value)) {
        value = value->operand(0);
        continue;
      }
      if (originals_.contains(value)) return nullptr;
      const HloInstruction* from = PassedOnFrom(*value);
      if (from == nullptr) return value;
      value = from;
    }
  }

  const absl::flat_hash_set<const HloInstruction*>& originals_;
  SelfComparisons::Instructions copied_;
};

}  // namespace

absl::StatusOr<Capture::Flags> Capture::FindDuplicatesCompared() const {
  if (alternatives_.empty()) return Flags();
  const SelfComparisons comparisons(module_.hlo());
  if (comparisons.empty()) return Flags();
  HLOENV_ASSIGN_OR_RETURN(const BuiltGraph* graph, GetGraph());
  Flags flags;
  for (const Alternative& alternative : alternatives_) {
    std::vector<uint8_t>& of_choices = flags.emplace_back();
    of_choices.resize(alternative.num_choices(), 0);
    if (alternative.kind == AlternativeKind::kPass) continue;
    for (size_t choice = 1; choice < of_choices.size(); ++choice) {
      CopyFinder copies(graph->originals);
      SelfComparisons::Instructions replaced;
      for (const Site& site : alternative.sites) {
        const int32_t node = site.nodes[choice - 1];
        if (nodes_.IsOriginal(node)) continue;
        const HloInstruction& value = *graph->instructions[node];
        if (!IsOfFusion(value)) continue;
        const HloInstruction& original = *analysis_->index.at(site.original);
        copies.Walk(value, original);
        if (site.uses.size() < UsesOf(*analysis_, site.original).size()) {
          continue;
        }
        for (const HloInstruction* result : ResultsOf(original)) {
          replaced.insert(result);
        }
      }
      of_choices[choice] =
          comparisons.MaySplit(copies.copied(), replaced) ? 1 : 0;
    }
  }
  return flags;
}

absl::StatusOr<const Capture::Flags*> Capture::GetDuplicatesCompared() const {
  std::lock_guard<std::mutex> lock(duplicates_mutex_);
  if (!duplicates_.has_value()) duplicates_.emplace(FindDuplicatesCompared());
  if (!duplicates_->ok()) return duplicates_->status();
  return &**duplicates_;
}

absl::StatusOr<std::vector<uint8_t>> Capture::DuplicatesCompared() const {
  HLOENV_ASSIGN_OR_RETURN(const Flags* duplicates, GetDuplicatesCompared());
  std::vector<uint8_t> flags;
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (duplicates->empty()) {
      flags.resize(flags.size() + alternatives_[a].num_choices(), 0);
    } else {
      const std::vector<uint8_t>& of_choices = (*duplicates)[a];
      flags.insert(flags.end(), of_choices.begin(), of_choices.end());
    }
  }
  return flags;
}

}  // namespace hloenv
