// SPDX-License-Identifier: Apache-2.0
//
// Identities of rewrites, which are the same after other passes have run, in a
// saved module, and in another process.
#include "absl/container/btree_set.h"
#include "absl/strings/str_format.h"
#include "hlo/fingerprint.h"
#include "rewrite/capture.h"
#include "support/status.h"
#include "tsl/platform/fingerprint.h"

namespace hloenv {

using xla::HloInstruction;

namespace {

// Maximum length of an operand path from an original to an instruction that its
// replacement reads.
constexpr int kReach = 3;

// Identifies an original instruction that a replacement reads: by its operand
// path from `original` ("#1#0"), or by its opcode if there is no short path.
std::string Read(const HloInstruction& original, const HloInstruction& read) {
  std::vector<std::pair<const HloInstruction*, std::string>> level = {
      {&original, ""}};
  for (int depth = 0; depth < kReach && !level.empty(); ++depth) {
    std::vector<std::pair<const HloInstruction*, std::string>> next;
    for (const auto& [from, path] : level) {
      for (int64_t i = 0; i < std::min<int64_t>(from->operand_count(), 8);
           ++i) {
        const std::string longer = absl::StrCat(path, "#", i);
        if (from->operand(i) == &read) return longer;
        next.emplace_back(from->operand(i), longer);
      }
    }
    level = std::move(next);
  }
  return absl::StrCat(".", xla::HloOpcodeString(read.opcode()));
}

}  // namespace

// A hash (16 hex digits) of the originals of an alternative and of their
// replacements in `choice`. It does not depend on names or on how operands are
// computed: `reverse(b)` is the same before and after XLA inlines the call that
// computes b.
std::string Capture::Identity(const Alternative& alternative,
                              int64_t choice) const {
  std::string bytes;
  std::vector<int32_t> stack;
  absl::flat_hash_set<int32_t> seen;
  for (const Site& site : alternative.sites) {
    const HloInstruction& original = *analysis_->index.at(site.original);
    absl::StrAppend(&bytes, "|", FingerprintKernel(original));
    stack.push_back(site.nodes[choice - 1]);
    while (!stack.empty()) {
      const int32_t node = stack.back();
      stack.pop_back();
      if (nodes_.IsOriginal(node)) {
        absl::StrAppend(&bytes, Read(original, *analysis_->index.at(node)));
        continue;
      }
      if (!seen.insert(node).second) continue;
      const NodeTable::NewNode& added = nodes_.at(node);
      const std::string kernel = added.source->KernelOf(added.local);
      if (!kernel.empty()) absl::StrAppend(&bytes, ">", kernel);
      for (int32_t operand : nodes_.OperandsOf(node)) stack.push_back(operand);
    }
  }
  return absl::StrFormat("%016x", tsl::Fingerprint64(bytes));
}

absl::StatusOr<std::vector<std::string>> Capture::Rejected(
    absl::Span<const int64_t> decisions) const {
  HLOENV_RETURN_IF_ERROR(CheckDecisions(decisions, /*partial=*/true));
  absl::btree_set<std::string> rejected;
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    if (decisions[a] < 0) continue;
    const auto& sources = alternatives_[a].sources;
    for (size_t c = 0; c < sources.size(); ++c) {
      if (decisions[a] == static_cast<int64_t>(c) + 1) continue;
      std::string identity;
      for (int32_t source : sources[c]) {
        for (const std::string& name : sources_[source]->xla_passes()) {
          if (identity.empty()) {
            identity = Identity(alternatives_[a], static_cast<int64_t>(c) + 1);
          }
          rejected.insert(absl::StrCat(name, kRejects, identity));
        }
      }
    }
  }
  return std::vector<std::string>(rejected.begin(), rejected.end());
}

absl::StatusOr<std::vector<int64_t>> Capture::DecisionsWithout(
    const std::string& name,
    const absl::flat_hash_set<std::string>& identities) const {
  HLOENV_ASSIGN_OR_RETURN(std::vector<int64_t> decisions, DecisionsFor(name));
  for (size_t a = 0; a < decisions.size(); ++a) {
    if (decisions[a] > 0 &&
        identities.contains(Identity(alternatives_[a], decisions[a]))) {
      decisions[a] = 0;
    }
  }
  return decisions;
}

}  // namespace hloenv
