// SPDX-License-Identifier: Apache-2.0
#include "hlo/config.h"

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/debug_options_flags.h"
#include "xla/tsl/util/command_line_flags.h"

namespace hloenv {
namespace {

constexpr char kVariable[] = "XLA_FLAGS";
constexpr char kIgnoreVariable[] = "HLOENV_IGNORE_UNKNOWN_XLA_FLAGS";
constexpr absl::string_view kSpace = " \t\r\n";

// XLA's options, read with `text` as XLA_FLAGS, which is `original` afterwards.
// XLA splits the variable once, on first use, and keeps the words.
xla::DebugOptions ReadWith(const std::string& text,
                           const std::string& original) {
  setenv(kVariable, text.c_str(), /*replace=*/1);
  xla::DebugOptions options = xla::GetDebugOptionsFromFlags();
  setenv(kVariable, original.c_str(), /*replace=*/1);
  return options;
}

// The text of XLA_FLAGS, or of the file that it names.
absl::StatusOr<std::string> FlagText(absl::string_view variable) {
  const absl::string_view text = absl::StripAsciiWhitespace(variable);
  if (text.empty() || text[0] == '-') return std::string(text);
  std::ifstream file{std::string(variable)};
  std::stringstream content;
  if (file) content << file.rdbuf();
  if (!file) {
    return Error(kFlagError,
                 absl::StrCat(kVariable, "='", variable,
                              "' does not start with '-', so it has to name a "
                              "file of flags, which cannot be read"));
  }
  return content.str();
}

absl::string_view NameOf(absl::string_view flag) {
  while (absl::ConsumePrefix(&flag, "-")) {
  }
  return flag.substr(0, flag.find('='));
}

enum class Verdict { kKnown, kUnknown, kBadValue };

Verdict Check(const std::string& flag, const std::vector<tsl::Flag>& known) {
  // Reading fuel changes XLA's global counters even when the options that it is
  // read into are thrown away.
  if (NameOf(flag) == "xla_fuel") return Verdict::kKnown;
  // Would make XLA read the environment, unchecked, on every use.
  if (NameOf(flag) == "xla_flags_reset") return Verdict::kUnknown;
  std::string program = "hloenv";
  std::string word = flag;
  char* words[] = {program.data(), word.data(), nullptr};
  int count = 2;
  if (!tsl::Flags::Parse(&count, words, known)) return Verdict::kBadValue;
  return count == 1 ? Verdict::kKnown : Verdict::kUnknown;
}

struct Sorted {
  std::vector<std::string> known;  // as written
  std::vector<std::string> unknown;
  std::vector<std::string> bad_value;
};

Sorted Sort(absl::string_view text) {
  QuietLogs quiet;  // the parser also logs what Check returns
  xla::DebugOptions scratch = xla::DefaultDebugOptionsIgnoringFlags();
  std::vector<tsl::Flag> flags;
  xla::MakeDebugOptionsFlags(&flags, &scratch);
  Sorted sorted;
  for (const FlagWord& word : SplitFlags(text)) {
    switch (Check(word.flag, flags)) {
      case Verdict::kKnown:
        sorted.known.push_back(word.raw);
        break;
      case Verdict::kUnknown:
        sorted.unknown.push_back(std::string(
            absl::string_view(word.flag).substr(0, word.flag.find('='))));
        break;
      case Verdict::kBadValue:
        sorted.bad_value.push_back(word.flag);
        break;
    }
  }
  return sorted;
}

absl::StatusOr<xla::DebugOptions> ReadFlags() {
  const char* value = std::getenv(kVariable);
  if (value == nullptr) return xla::GetDebugOptionsFromFlags();
  const std::string original = value;
  HLOENV_ASSIGN_OR_RETURN(std::string text, FlagText(original));
  // XLA takes blanks for the name of a file.
  if (text.empty()) return ReadWith("", original);
  const Sorted sorted = Sort(text);
  if (!sorted.bad_value.empty()) {
    return Error(kFlagError,
                 absl::StrCat("XLA refuses the value in ",
                              absl::StrJoin(sorted.bad_value, ", "), " of ",
                              kVariable, "; correct or remove it"));
  }
  if (sorted.unknown.empty()) return xla::GetDebugOptionsFromFlags();
  const char* ignore = std::getenv(kIgnoreVariable);
  if (ignore == nullptr || absl::string_view(ignore) != "1") {
    return Error(
        kFlagError,
        absl::StrCat(kVariable, " holds ", absl::StrJoin(sorted.unknown, ", "),
                     ", which the XLA of TensorFlow ",
                     HLOENV_TENSORFLOW_VERSION, " does not take; remove ",
                     sorted.unknown.size() == 1 ? "it" : "them", ", or set ",
                     kIgnoreVariable,
                     "=1 to run hloenv's XLA with the flags that it knows"));
  }
  return ReadWith(absl::StrJoin(sorted.known, " "), original);
}

// The backend computes the minimum and maximum of NaN one way inside fusions
// and another way outside, so that what is fused would change results. Unless
// the user has said how, both give NaN, as jax has it.
absl::Status PropagateNan(xla::DebugOptions* options) {
  const char* value = std::getenv(kVariable);
  HLOENV_ASSIGN_OR_RETURN(std::string text,
                          FlagText(value == nullptr ? "" : value));
  for (const FlagWord& word : SplitFlags(text)) {
    if (NameOf(word.flag) == "xla_cpu_enable_fast_min_max") {
      return absl::OkStatus();
    }
  }
  options->set_xla_cpu_enable_fast_min_max(false);
  return absl::OkStatus();
}

}  // namespace

std::vector<FlagWord> SplitFlags(absl::string_view text) {
  std::vector<FlagWord> words;
  size_t begin = text.find_first_not_of(kSpace);
  while (begin != absl::string_view::npos && text[begin] == '-') {
    size_t end = begin;
    while (end < text.size() && (absl::ascii_isalnum(text[end]) ||
                                 text[end] == '-' || text[end] == '_')) {
      ++end;
    }
    FlagWord word;
    const bool is_quoted = end + 1 < text.size() && text[end] == '=' &&
                           (text[end + 1] == '\'' || text[end + 1] == '"');
    if (is_quoted) {
      const char quote = text[end + 1];
      word.flag = std::string(text.substr(begin, end + 1 - begin));
      end += 2;
      while (end < text.size() && text[end] != quote) {
        if (quote == '"' && text[end] == '\\' && end + 1 < text.size()) ++end;
        word.flag += text[end++];
      }
      if (end < text.size()) ++end;
    } else {
      end = std::min(text.find_first_of(kSpace, end), text.size());
      word.flag = std::string(text.substr(begin, end - begin));
    }
    word.raw = std::string(text.substr(begin, end - begin));
    words.push_back(std::move(word));
    begin = text.find_first_not_of(kSpace, end);
  }
  return words;
}

absl::StatusOr<xla::HloModuleConfig> DefaultModuleConfig() {
  static std::mutex mutex;
  static auto* options = new std::optional<xla::DebugOptions>();
  xla::HloModuleConfig config;
  std::lock_guard<std::mutex> lock(mutex);
  if (!options->has_value()) {
    HLOENV_ASSIGN_OR_RETURN(*options, ReadFlags());
    HLOENV_RETURN_IF_ERROR(PropagateNan(&**options));
  }
  config.set_debug_options(**options);
  return config;
}

}  // namespace hloenv
