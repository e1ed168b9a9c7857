// SPDX-License-Identifier: Apache-2.0
#include "rewrite/live_copy.h"

#include <algorithm>
#include <utility>

#include "rewrite/capture.h"
#include "support/status.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;

LiveCopy CopyOf(HloModule* live) {
  // With a separate config: a shared config is copied on the next write, and
  // passes hold pointers into it (layout-assignment to the entry layout).
  auto [clone, copies] = live->CloneWithContext(/*suffix=*/"", live->config());
  auto live_of = std::make_unique<xla::HloCloneContext>(live);
  for (HloComputation* computation : live->computations()) {
    // Clones do not contain computations without callers.
    HloComputation* copy = copies->FindComputation(computation);
    if (copy == nullptr) continue;
    live_of->MapComputation(copy, computation);
    for (HloInstruction* instruction : computation->instructions()) {
      if (HloInstruction* image = copies->FindInstruction(instruction)) {
        live_of->MapInstruction(image, instruction);
      }
    }
  }
  return {Module(std::move(clone)), std::move(live_of)};
}

absl::StatusOr<bool> RunWithout(
    const absl::flat_hash_set<std::string>& rejected, const ShadowPass& pass,
    HloModule* live, absl::FunctionRef<absl::StatusOr<bool>()> run) {
  LiveCopy copy = CopyOf(live);
  HLOENV_ASSIGN_OR_RETURN(const std::shared_ptr<const Capture> capture,
                          Capture::Run(copy.module, {}, &pass));
  HLOENV_ASSIGN_OR_RETURN(const std::vector<int64_t> all,
                          capture->DecisionsFor(pass.name));
  HLOENV_ASSIGN_OR_RETURN(const std::vector<int64_t> decisions,
                          capture->DecisionsWithout(pass.name, rejected));
  if (decisions == all) return run();
  const bool accepts_any =
      std::any_of(decisions.begin(), decisions.end(),
                  [](int64_t decision) { return decision > 0; });
  if (accepts_any) {
    HLOENV_RETURN_IF_ERROR(
        capture->ApplyInPlace(decisions, live, std::move(copy.live_of)));
  }
  return accepts_any;
}

}  // namespace hloenv
