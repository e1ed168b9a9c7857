// SPDX-License-Identifier: Apache-2.0
//
// Keeps the comparisons of a value with one that is picked from it whole,
// across rewrites that were found apart.
//
//   module                          offered
//   x = f32[8] multiply(y, z)       x1 for x
//   m = f32[] reduce(x), max        m1 for m, which reads x
//   b = f32[8] broadcast(m)
//   e = pred[8] compare(x, b), EQ   e1 for e, which reads x and b
//
// Replacements read originals. With x1 and m1, e compares x1 with the maximum
// of x; with x1 and e1, e1 compares x with the maximum of x1. The two may be
// rounded differently, so that e is false everywhere. So m1 and e1 are not
// offered beside x1; or, if an XLA pass made them, all of m, b and e becomes
// part of them.
//
// Rewrites of one XLA pass do not split a comparison (shadow_comparisons.cc).
// Fusions are not looked at: what they compute is the same, and that backends
// may round it differently is marked (duplicates.cc).
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "rewrite/capture.h"
#include "rewrite/compared.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;

namespace {

struct Replacement {
  Use use;
  int32_t original;
  int32_t node;
  int32_t source;
};

// Nodes and sources.
using ChoicesOfUse = std::set<std::pair<int32_t, int32_t>>;

}  // namespace

bool Capture::IsFusion(int32_t node) const {
  if (nodes_.IsOriginal(node)) return false;
  const NodeTable::NewNode& added = nodes_.at(node);
  return added.source->IsFusion(added.local);
}

// Numbers of the originals that `node` reads, directly or through new nodes.
absl::flat_hash_set<int32_t> Capture::OriginalsReadFrom(int32_t node) const {
  absl::flat_hash_set<int32_t> originals;
  absl::flat_hash_set<int32_t> seen = {node};
  std::vector<int32_t> left = {node};
  while (!left.empty()) {
    const int32_t at = left.back();
    left.pop_back();
    if (nodes_.IsOriginal(at)) {
      originals.insert(at);
      continue;
    }
    for (int32_t operand : nodes_.OperandsOf(at)) {
      if (seen.insert(operand).second) left.push_back(operand);
    }
  }
  return originals;
}

// Returns whether a source changed; then the nodes must be numbered again.
bool Capture::KeepComparisonsWhole(const Offers& offers) {
  const bool is_one_pass =
      sources_.size() == 1 && sources_.front()->Result() != nullptr;
  if (is_one_pass) return false;
  std::vector<Replacement> replacements;
  for (const Offer& offer : offers.single) {
    replacements.push_back(
        {offer.use, offer.original, offer.node, offer.source});
  }
  for (const Alternative& alternative : offers.grouped) {
    for (const Site& site : alternative.sites) {
      for (const Use& use : site.uses) {
        replacements.push_back({use, site.original, site.nodes.front(),
                                alternative.sources.front().front()});
      }
    }
  }
  // By user and operand.
  absl::flat_hash_map<std::pair<int32_t, int64_t>, ChoicesOfUse> choices_of;
  absl::flat_hash_set<int32_t> replaced;
  for (const Replacement& each : replacements) {
    if (each.use.user == Use::kRoot || IsFusion(each.node)) continue;
    choices_of[{each.use.user, each.use.operand}].insert(
        {each.node, each.source});
    replaced.insert(each.original);
  }
  if (replaced.empty()) return false;
  absl::flat_hash_map<int32_t, absl::flat_hash_set<int32_t>> read_by;
  // Which replacements not to make, and for which readers. Sources change only
  // when all are found.
  std::vector<std::pair<Replacement, std::vector<int32_t>>> split;
  const auto find_split = [&](const HloInstruction& base, const Picks& picks) {
    const int32_t value = analysis_->index.Of(&base);
    std::vector<int32_t> readers;
    bool is_replaced = false;
    std::set<ChoicesOfUse> choices;  // at each use of the value
    for (const auto& [reader, operands] : picks) {
      readers.push_back(analysis_->index.Of(reader));
      for (int64_t k : operands) {
        if (reader->operand(k) != &base) continue;
        const auto found = choices_of.find({readers.back(), k});
        is_replaced |= found != choices_of.end();
        choices.insert(found == choices_of.end() ? ChoicesOfUse()
                                                 : found->second);
      }
    }
    if (!is_replaced) return;
    for (const Replacement& each : replacements) {
      const bool is_reader = absl::c_linear_search(readers, each.use.user);
      if (each.original == value) {
        // Uses with other choices are other decisions.
        if (is_reader && choices.size() > 1) split.push_back({each, readers});
        continue;
      }
      const auto [entry, is_new] = read_by.try_emplace(each.node);
      if (is_new) entry->second = OriginalsReadFrom(each.node);
      const absl::flat_hash_set<int32_t>& read = entry->second;
      if (!read.contains(value)) continue;
      const bool takes_the_place_of_one =
          is_reader && absl::c_linear_search(readers, each.original);
      const bool reads_another = absl::c_any_of(
          readers, [&read](int32_t r) { return read.contains(r); });
      if (takes_the_place_of_one || reads_another) {
        split.push_back({each, readers});
      }
    }
  };
  for (const HloComputation* computation : analysis_->index.computations()) {
    if (computation->IsFusionComputation()) continue;
    VisitSelfComparisons(
        *computation,
        [&](const HloInstruction& value) {
          return replaced.contains(analysis_->index.Of(&value));
        },
        find_split);
  }
  bool changed = false;
  for (const auto& [each, readers] : split) {
    if (sources_[each.source]->KeepWhole(each.node, readers)) changed = true;
  }
  return changed;
}

}  // namespace hloenv
