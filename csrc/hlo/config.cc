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
#include "support/fork.h"
#include "support/hooks.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/debug_options_flags.h"
#include "xla/tsl/util/command_line_flags.h"

namespace hloenv {
namespace {

constexpr char kVariable[] = "XLA_FLAGS";
constexpr char kIgnoreVariable[] = "HLOENV_IGNORE_UNKNOWN_XLA_FLAGS";
constexpr absl::string_view kSpace = " \t\r\n";

// The flags of an XLA_FLAGS value as XLA splits it, without quotes and escapes:
// words that start with '-', whose value may be quoted; what follows the first
// word that is not a flag is not read.
std::vector<std::string> SplitFlags(absl::string_view text) {
  std::vector<std::string> words;
  size_t begin = text.find_first_not_of(kSpace);
  while (begin != absl::string_view::npos && text[begin] == '-') {
    size_t end = begin;
    while (end < text.size() && (absl::ascii_isalnum(text[end]) ||
                                 text[end] == '-' || text[end] == '_')) {
      ++end;
    }
    std::string flag;
    const bool is_quoted = end + 1 < text.size() && text[end] == '=' &&
                           (text[end + 1] == '\'' || text[end + 1] == '"');
    if (is_quoted) {
      const char quote = text[end + 1];
      flag = std::string(text.substr(begin, end + 1 - begin));
      end += 2;
      while (end < text.size() && text[end] != quote) {
        if (quote == '"' && text[end] == '\\' && end + 1 < text.size()) ++end;
        flag += text[end++];
      }
      if (end < text.size()) ++end;
    } else {
      end = std::min(text.find_first_of(kSpace, end), text.size());
      flag = std::string(text.substr(begin, end - begin));
    }
    words.push_back(std::move(flag));
    begin = text.find_first_not_of(kSpace, end);
  }
  return words;
}

// The words that XLA reads on this thread instead of XLA_FLAGS.
thread_local const std::vector<std::string>* replacement = nullptr;

// The words have been checked against the same flags.
void Parse(const std::vector<std::string>& words,
           const std::vector<tsl::Flag>& flags) {
  std::vector<std::string> arguments = {"hloenv"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(arguments.size());
  tsl::Flags::Parse(&count, pointers.data(), flags);
}

void (*parse_environment)(absl::string_view, const std::vector<tsl::Flag>&,
                          bool);
void ParseEnvironment(absl::string_view variable,
                      const std::vector<tsl::Flag>& flags, bool resets) {
  if (replacement == nullptr || variable != kVariable) {
    return parse_environment(variable, flags, resets);
  }
  Parse(*replacement, flags);
}

// XLA's options, parsed from `words` instead of XLA_FLAGS. XLA parses them
// once, on first use. The environment is not changed, because other threads may
// read it or start processes with it.
absl::StatusOr<xla::DebugOptions> ReadWith(
    const std::vector<std::string>& words) {
  static auto* group = new HookGroup(
      {{"_ZN3xla32ParseFlagsFromEnvAndDieIfUnknownESt17basic_string_viewIcSt"
        "11char_traitsIcEERKSt6vectorIN3tsl4FlagESaIS6_EEb",
        reinterpret_cast<void*>(ParseEnvironment),
        reinterpret_cast<void**>(&parse_environment)}});
  HLOENV_RETURN_IF_ERROR(group->Install());
  replacement = &words;
  xla::DebugOptions options = xla::GetDebugOptionsFromFlags();
  replacement = nullptr;
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
                              "' does not start with '-', so it must name a "
                              "file of flags, but that cannot be read"));
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
  std::vector<std::string> known;
  std::vector<std::string> unknown;
  std::vector<std::string> bad_value;
};

Sorted Sort(absl::string_view text) {
  QuietScope scope;  // the parser also logs what Check returns
  xla::DebugOptions scratch = xla::DefaultDebugOptionsIgnoringFlags();
  std::vector<tsl::Flag> flags;
  xla::MakeDebugOptionsFlags(&flags, &scratch);
  Sorted sorted;
  for (const std::string& flag : SplitFlags(text)) {
    switch (Check(flag, flags)) {
      case Verdict::kKnown:
        sorted.known.push_back(flag);
        break;
      case Verdict::kUnknown:
        sorted.unknown.push_back(
            std::string(absl::string_view(flag).substr(0, flag.find('='))));
        break;
      case Verdict::kBadValue:
        sorted.bad_value.push_back(flag);
        break;
    }
  }
  return sorted;
}

absl::StatusOr<xla::DebugOptions> ReadFlags() {
  const char* value = std::getenv(kVariable);
  if (value == nullptr) return xla::GetDebugOptionsFromFlags();
  HLOENV_ASSIGN_OR_RETURN(std::string text, FlagText(value));
  // XLA interprets blanks as a file name.
  if (text.empty()) return ReadWith({});
  const Sorted sorted = Sort(text);
  if (!sorted.bad_value.empty()) {
    return Error(kFlagError,
                 absl::StrCat("XLA cannot parse the value in ",
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
                     HLOENV_TENSORFLOW_VERSION, " does not know; remove ",
                     sorted.unknown.size() == 1 ? "it" : "them", ", or set ",
                     kIgnoreVariable,
                     "=1 to run hloenv's XLA with the flags that it knows"));
  }
  return ReadWith(sorted.known);
}

// The backend computes the minimum and maximum of NaN differently inside and
// outside of fusions, so fusion would change results. Unless the user sets the
// flag, both return NaN, as in jax.
absl::Status PropagateNan(xla::DebugOptions* options) {
  const char* value = std::getenv(kVariable);
  HLOENV_ASSIGN_OR_RETURN(std::string text,
                          FlagText(value == nullptr ? "" : value));
  for (const std::string& flag : SplitFlags(text)) {
    if (NameOf(flag) == "xla_cpu_enable_fast_min_max") {
      return absl::OkStatus();
    }
  }
  options->set_xla_cpu_enable_fast_min_max(false);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<xla::HloModuleConfig> DefaultModuleConfig() {
  static auto* options = new std::optional<xla::DebugOptions>();
  xla::HloModuleConfig config;
  std::lock_guard<std::mutex> lock(MutexOf(ProcessLock::kConfig));
  if (!options->has_value()) {
    HLOENV_ASSIGN_OR_RETURN(*options, ReadFlags());
    HLOENV_RETURN_IF_ERROR(PropagateNan(&**options));
  }
  config.set_debug_options(**options);
  return config;
}

}  // namespace hloenv
