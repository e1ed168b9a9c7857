// SPDX-License-Identifier: Apache-2.0
#include "rewrite/alternative.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace hloenv {
namespace {

// The value of `"key":"value"` in a flat JSON object from MakeAlternative.
absl::string_view JsonField(absl::string_view json, absl::string_view key) {
  const std::string start = absl::StrCat("\"", key, "\":\"");
  const size_t from = json.find(start);
  if (from == absl::string_view::npos) return "";
  absl::string_view rest = json.substr(from + start.size());
  return rest.substr(0, rest.find('"'));
}

}  // namespace

bool IsAlternative(const xla::HloInstruction& instruction) {
  return instruction.opcode() == xla::HloOpcode::kCustomCall &&
         instruction.custom_call_target() == kAlternativeTarget;
}

std::optional<int64_t> AlternativeOf(const xla::HloInstruction& instruction) {
  int64_t alternative;
  if (!IsAlternative(instruction) ||
      !absl::SimpleAtoi(
          JsonField(instruction.raw_backend_config_string(), "alternative"),
          &alternative)) {
    return std::nullopt;
  }
  return alternative;
}

std::unique_ptr<xla::HloInstruction> MakeAlternative(
    absl::Span<xla::HloInstruction* const> choices, int64_t alternative,
    absl::string_view kind, absl::Span<const std::vector<std::string>> passes) {
  std::string names = absl::StrJoin(
      passes, "|", [](std::string* out, const std::vector<std::string>& list) {
        absl::StrAppend(out, absl::StrJoin(list, ","));
      });
  std::unique_ptr<xla::HloInstruction> site =
      xla::HloInstruction::CreateCustomCall(
          choices[0]->shape(), choices, kAlternativeTarget,
          absl::StrCat("{\"alternative\":\"", alternative, "\",\"kind\":\"",
                       kind, "\",\"passes\":\"", names, "\"}"));
  site->SetAndSanitizeName("alternative");
  return site;
}

std::vector<AlternativeSite> FindAlternatives(const xla::HloModule& module) {
  std::vector<AlternativeSite> sites;
  for (xla::HloComputation* computation : module.computations()) {
    for (xla::HloInstruction* instruction : computation->instructions()) {
      const std::optional<int64_t> alternative = AlternativeOf(*instruction);
      if (!alternative.has_value()) continue;
      const std::string& config = instruction->raw_backend_config_string();
      AlternativeSite site;
      site.instruction = instruction;
      site.alternative = *alternative;
      site.kind = std::string(JsonField(config, "kind"));
      for (absl::string_view list :
           absl::StrSplit(JsonField(config, "passes"), '|')) {
        site.passes.push_back(absl::StrSplit(list, ',', absl::SkipEmpty()));
      }
      sites.push_back(std::move(site));
    }
  }
  std::stable_sort(sites.begin(), sites.end(),
                   [](const AlternativeSite& a, const AlternativeSite& b) {
                     return a.alternative < b.alternative;
                   });
  return sites;
}

}  // namespace hloenv
