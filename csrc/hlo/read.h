// SPDX-License-Identifier: Apache-2.0
// Reads modules from text and protos.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hlo/module.h"

namespace hloenv {

// Raised where the structure check cannot tell whether XLA can read the input.
inline constexpr absl::string_view kDoubtfulModuleError = "DoubtfulModuleError";

// How input becomes a module.
struct ReadOptions {
  // Check the structure first (hlo/outline/outline.h), because XLA's parser and
  // proto reader end the process on some invalid input. ParseError for invalid
  // input, DoubtfulModuleError where the check cannot decide.
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

// Runs XLA's verifier, and checks that each layout is possible, which the
// verifier does not; where `layout_sensitive`, also that the layouts of
// operands and results agree, which XLA promises after layout assignment. Does
// not change `hlo`. InvalidModuleError.
absl::Status VerifyHlo(xla::HloModule* hlo, bool layout_sensitive = false);

// PassError where a pass made the invalid `after` of a valid module: a bug of
// XLA's.
absl::Status CheckStillValid(const Module& before, xla::HloModule* after,
                             absl::string_view pass);

}  // namespace hloenv
