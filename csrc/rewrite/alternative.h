// SPDX-License-Identifier: Apache-2.0
// The encoding of alternatives as HLO custom calls.
//
//   %alternative.7 = f32[4]{0} custom-call(%original, %choice.1, %choice.2),
//     custom_call_target="hloenv.alternative",
//     backend_config={"alternative":"3","kind":"instruction",
//                     "passes":"algsimp|algsimp,cse"}
//
// Sites that share one decision carry the same number. An alternative of kind
// "pass" is at the entry's root and has the original as every operand: its
// choices are modules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace xla {
class HloInstruction;
class HloModule;
}  // namespace xla

namespace hloenv {

inline constexpr absl::string_view kAlternativeTarget = "hloenv.alternative";

struct AlternativeSite {
  xla::HloInstruction* instruction;
  int64_t alternative;
  std::string kind;
  // For each choice above 0, the passes that propose it.
  std::vector<std::vector<std::string>> passes;
};

bool IsAlternative(const xla::HloInstruction& instruction);

// The number of the alternative, if `instruction` is a site.
std::optional<int64_t> AlternativeOf(const xla::HloInstruction& instruction);

// A new site, not yet in a computation.
std::unique_ptr<xla::HloInstruction> MakeAlternative(
    absl::Span<xla::HloInstruction* const> choices, int64_t alternative,
    absl::string_view kind, absl::Span<const std::vector<std::string>> passes);

// Every site of `module`, sorted by alternative, then in module order.
std::vector<AlternativeSite> FindAlternatives(const xla::HloModule& module);

}  // namespace hloenv
