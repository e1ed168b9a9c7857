// SPDX-License-Identifier: Apache-2.0
// Candidate passes: hloenv's own passes, which propose single replacements.
//
// An XLA pass applies a greedy heuristic, and a run of it reveals only the
// rewrites that it chose. A candidate pass lists all valid replacements of its
// kind, and the caller decides.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "passes/registry.h"

namespace xla {
class HloInstruction;
class HloModule;
}  // namespace xla

namespace hloenv {

// Maps an instruction of the analysed module to its copy in the module in which
// the replacement is built.
using ImageOf =
    absl::FunctionRef<xla::HloInstruction*(const xla::HloInstruction*)>;

struct Proposal {
  std::string rule;  // the pass's rule; empty if the pass has no rules
  // Instructions of the module that the proposal replaces together, all in one
  // computation. Each proposal alone is correct; two that share an instruction
  // exclude each other.
  std::vector<const xla::HloInstruction*> originals;
  // Instructions of the module that the replacement reads, each once, in
  // operand order, so that cycles can be found without building.
  std::vector<const xla::HloInstruction*> reads;
  // Whether the replacement, which is one call of a computation or its
  // elements, reads what takes the place of `reads` in other proposals like
  // this that are accepted, too, and not the original. After copy insertion it
  // must: an original that stays for it reads what is overwritten meanwhile.
  bool reads_decided = false;
  // Adds the replacement to the computation that holds the images of `reads`
  // and returns one instruction per original, of the same shape and layout.
  // Calls `image` only for instructions of `reads` and does not change the
  // images. Works repeatedly and on any clone of the analysed module, which
  // must still exist, unchanged.
  std::function<absl::StatusOr<std::vector<xla::HloInstruction*>>(
      ImageOf image)>
      build;
};

class CandidatePass {
 public:
  virtual ~CandidatePass() = default;
  virtual absl::string_view name() const = 0;
  // All valid proposals for `module`. Deterministic, including the order.
  virtual absl::StatusOr<std::vector<Proposal>> Propose(
      const xla::HloModule& module) const = 0;
};

// The implementation of a candidate pass: its object, or the XLA passes that it
// combines.
struct Candidates {
  std::unique_ptr<CandidatePass> pass;
  std::vector<PassSpec> union_of;
};

// For `module`. Errors: UnknownPassError, PassOptionError; PassError when
// `spec` names an XLA pass.
absl::StatusOr<Candidates> MakeCandidates(const PassSpec& spec,
                                          const xla::HloModule& module);

}  // namespace hloenv
