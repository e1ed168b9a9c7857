// SPDX-License-Identifier: Apache-2.0
// Passes of our own that propose replacements one by one.
//
// An XLA pass applies a greedy heuristic, and running it shows only what it
// chose. A candidate pass lists everything that would be right and leaves the
// choice to the caller.
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

// From an instruction of the module that was read to its copy in the module
// that the replacement goes into.
using ImageOf =
    absl::FunctionRef<xla::HloInstruction*(const xla::HloInstruction*)>;

struct Proposal {
  std::string rule;  // which of the pass's rules; empty where it has none
  // Instructions of the module that the proposal replaces together, all in one
  // computation. Each proposal is right alone; two that share an instruction
  // exclude each other.
  std::vector<const xla::HloInstruction*> originals;
  // Instructions of the module that the replacement reads, each once, in
  // operand order: enough to check for cycles without building.
  std::vector<const xla::HloInstruction*> reads;
  // Adds the replacement to the computation that holds the images of `reads`
  // and returns one instruction per original, of the same shape and layout.
  // Calls `image` for instructions of `reads` only and does not change what it
  // returns. Works on any clone of the module, any number of times; the module
  // that was read must still exist, unchanged.
  std::function<absl::StatusOr<std::vector<xla::HloInstruction*>>(
      ImageOf image)>
      build;
};

class CandidatePass {
 public:
  virtual ~CandidatePass() = default;
  virtual absl::string_view name() const = 0;
  // Everything that would be right on `module`, which stays as it is. Same
  // module, same proposals in the same order.
  virtual absl::StatusOr<std::vector<Proposal>> Propose(
      const xla::HloModule& module) const = 0;
};

// What a candidate pass is made of: its object, or the passes that it unites.
struct Candidates {
  std::unique_ptr<CandidatePass> pass;
  std::vector<PassSpec> union_of;
};

// For `module`. Errors: UnknownPassError, PassOptionError; PassError when
// `spec` names an XLA pass.
absl::StatusOr<Candidates> MakeCandidates(const PassSpec& spec,
                                          const xla::HloModule& module);

}  // namespace hloenv
