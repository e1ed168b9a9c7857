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
  // Users and operands that may read another value, and which they read now.
  absl::flat_hash_map<std::pair<int32_t, int64_t>, int32_t> rewired;
  absl::flat_hash_set<int32_t> replaced;
  for (const Replacement& each : replacements) {
    if (each.use.user == Use::kRoot || IsFusion(each.node)) continue;
    rewired[{each.use.user, each.use.operand}] = each.original;
    replaced.insert(each.original);
  }
  if (replaced.empty()) return false;
  absl::flat_hash_map<int32_t, absl::flat_hash_set<int32_t>> read_by;
  bool changed = false;
  const auto keep_whole = [&](const HloInstruction& base, const Picks& picks) {
    const int32_t value = analysis_->index.Of(&base);
    std::vector<int32_t> readers;
    bool is_replaced = false;
    for (const auto& [reader, operands] : picks) {
      readers.push_back(analysis_->index.Of(reader));
      for (int64_t k : operands) {
        const auto found = rewired.find({readers.back(), k});
        if (found != rewired.end()) is_replaced |= found->second == value;
      }
    }
    if (!is_replaced) return;
    for (const Replacement& each : replacements) {
      if (each.original == value) continue;
      const auto [entry, is_new] = read_by.try_emplace(each.node);
      if (is_new) entry->second = OriginalsReadFrom(each.node);
      if (!entry->second.contains(value)) continue;
      const bool takes_the_place_of_one =
          absl::c_linear_search(readers, each.original) &&
          absl::c_linear_search(readers, each.use.user);
      const bool reads_another = absl::c_any_of(
          readers, [&](int32_t r) { return entry->second.contains(r); });
      if (!takes_the_place_of_one && !reads_another) continue;
      if (sources_[each.source]->KeepWhole(each.node, readers)) changed = true;
    }
  };
  for (const HloComputation* computation : analysis_->index.computations()) {
    if (computation->IsFusionComputation()) continue;
    VisitSelfComparisons(
        *computation,
        [&](const HloInstruction& value) {
          return replaced.contains(analysis_->index.Of(&value));
        },
        keep_whole);
  }
  return changed;
}

}  // namespace hloenv
