// SPDX-License-Identifier: Apache-2.0
// How an alternative is written into a module. No other file knows.
//
//   %alternative.7 = f32[4]{0} custom-call(%original, %choice.1, %choice.2),
//     custom_call_target="hloenv.alternative",
//     backend_config={"alternative":"3","kind":"instruction",
//                     "passes":"algsimp|algsimp,cse"}
//
// Sites that share one decision carry the same number. An alternative of kind
// "pass" stands at the entry's root with the original as every operand: its
// choices are whole modules.
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
  // Of each choice above 0: the passes that propose it.
  std::vector<std::vector<std::string>> passes;
};

bool IsAlternative(const xla::HloInstruction& instruction);

// The alternative whose site `instruction` is; nothing for all else.
std::optional<int64_t> AlternativeOf(const xla::HloInstruction& instruction);

// A site that is not in a computation yet.
std::unique_ptr<xla::HloInstruction> MakeAlternative(
    absl::Span<xla::HloInstruction* const> choices, int64_t alternative,
    absl::string_view kind, absl::Span<const std::vector<std::string>> passes);

// Every site of `module`, by alternative, then in the order of the module.
std::vector<AlternativeSite> FindAlternatives(const xla::HloModule& module);

}  // namespace hloenv
