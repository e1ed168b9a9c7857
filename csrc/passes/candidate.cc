// SPDX-License-Identifier: Apache-2.0
#include "passes/candidate.h"

#include "passes/general_fusion.h"
#include "support/status.h"

namespace hloenv {

absl::StatusOr<std::unique_ptr<CandidatePass>> MakeCandidatePass(
    const PassSpec& spec) {
  HLOENV_ASSIGN_OR_RETURN(const PassInfo* info, FindPass(spec.name));
  HLOENV_ASSIGN_OR_RETURN(Options options, ResolveOptions(*info, spec));
  if (!info->is_candidate()) {
    return Error(kPassError, absl::StrCat("pass '", spec.name,
                                          "' is XLA's own: it runs on a module "
                                          "and proposes nothing"));
  }
  return MakeGeneralFusion(options);
}

}  // namespace hloenv
