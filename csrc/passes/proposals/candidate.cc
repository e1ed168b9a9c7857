// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/candidate.h"

#include "support/status.h"

namespace hloenv {

absl::StatusOr<Candidates> MakeCandidates(const PassSpec& spec,
                                          const xla::HloModule& module) {
  HLOENV_ASSIGN_OR_RETURN(const PassInfo* info, FindPass(spec.name));
  HLOENV_ASSIGN_OR_RETURN(Options options, ResolveOptions(*info, spec));
  if (!info->is_candidate()) {
    return Error(kPassError, absl::StrCat("pass '", spec.name,
                                          "' is an XLA pass: it runs on a "
                                          "module and has no proposals"));
  }
  Candidates result;
  if (info->union_of != nullptr) {
    result.union_of = info->union_of(options, module);
  } else {
    result.pass = info->make_candidate(options);
  }
  return result;
}

}  // namespace hloenv
