// SPDX-License-Identifier: Apache-2.0
// Reads modules that come from elsewhere.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hlo/module.h"

namespace hloenv {

// Raised where the structure check cannot tell whether XLA can read the input.
inline constexpr absl::string_view kDoubtfulModuleError = "DoubtfulModuleError";

// How input becomes a module.
struct ReadOptions {
  // Look at the structure first (hlo/outline/outline.h): XLA's parser and proto
  // reader end the process where it is not sound. DoubtfulModuleError where the
  // check cannot tell, ParseError where it can.
  bool check_structure = true;
  // Run XLA's verifier; InvalidModuleError.
  bool verify = true;
};

// HLO text, in which no escape stands for what is not UTF-8; a serialized
// HloModuleProto, or the HloProto that XLA dumps. ParseError.
absl::StatusOr<Module> ReadText(absl::string_view text,
                                const ReadOptions& options);
absl::StatusOr<Module> ReadProto(absl::string_view bytes,
                                 const ReadOptions& options);

// Runs XLA's verifier, and checks all layouts, to which it is blind. `hlo`
// stays as it is. InvalidModuleError.
absl::Status VerifyHlo(xla::HloModule* hlo);

}  // namespace hloenv
