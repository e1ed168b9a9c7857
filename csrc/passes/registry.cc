// SPDX-License-Identifier: Apache-2.0
#include "passes/registry.h"

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "passes/catalog/catalog.h"
#include "support/names.h"
#include "support/status.h"

namespace hloenv {

namespace {

// The distance of `given` from `candidate`; none if they are not similar. Parts
// of a name are similar to it.
std::optional<size_t> Distance(absl::string_view given,
                               absl::string_view candidate) {
  if (given.empty() || candidate.empty()) return std::nullopt;
  const size_t distance = EditDistance(given, candidate);
  if (distance <= std::max<size_t>(1, given.size() / 4)) return distance;
  const bool is_part = given.size() >= 3 && absl::StrContains(candidate, given);
  const bool is_start = given.size() >= 2 && absl::StartsWith(candidate, given);
  const bool holds_it =
      candidate.size() >= 3 && absl::StrContains(given, candidate);
  if (is_part || is_start || holds_it) return given.size();
  return std::nullopt;
}

// "; did you mean 'x'? ", or ". " when no name is similar. Each entry is a name
// and its accepted spellings.
std::string DidYouMean(
    absl::string_view given,
    const std::vector<std::pair<std::string, std::vector<std::string>>>&
        names) {
  const std::string wanted = NormalName(given);
  std::optional<size_t> best;
  std::string closest;
  for (const auto& [name, spellings] : names) {
    for (const std::string& spelling : spellings) {
      std::optional<size_t> distance = Distance(wanted, NormalName(spelling));
      if (distance && (!best || *distance < *best)) {
        best = distance;
        closest = name;
      }
    }
  }
  return best ? absl::StrCat("; did you mean '", closest, "'? ") : ". ";
}

// With a decimal point: 2.0, not 2.
std::string FloatToString(double value) {
  std::string text = absl::StrCat(value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string ValueAndType(const OptionValue& value) {
  return absl::StrCat(OptionValueToString(value), " (",
                      OptionTypeName(TypeOf(value)), ")");
}

absl::StatusOr<OptionValue> CheckValue(const PassInfo& pass,
                                       const OptionInfo& option,
                                       const OptionValue& given) {
  OptionValue value = given;
  if (option.type() == OptionType::kFloat &&
      std::holds_alternative<int64_t>(given)) {
    value = static_cast<double>(std::get<int64_t>(given));
  }
  auto problem = [&](absl::string_view allowed) {
    return Error(kPassOptionError,
                 absl::StrCat("option '", option.name, "' of pass '", pass.name,
                              "' takes ", allowed, ", not ",
                              ValueAndType(given), "; its default is ",
                              OptionValueToString(option.default_value)));
  };
  if (TypeOf(value) != option.type()) {
    return problem(
        absl::StrCat(option.type() == OptionType::kInt ? "an " : "a ",
                     OptionTypeName(option.type()),
                     option.type() == OptionType::kFloat ? " or an int" : ""));
  }
  if (!option.allowed.empty() &&
      std::find(option.allowed.begin(), option.allowed.end(),
                std::get<std::string>(value)) == option.allowed.end()) {
    return problem(
        absl::StrCat("one of '", absl::StrJoin(option.allowed, "', '"), "'"));
  }
  if (option.minimum && std::get<int64_t>(value) < *option.minimum) {
    return problem(absl::StrCat("an int of at least ", *option.minimum));
  }
  return value;
}

}  // namespace

absl::string_view OptionTypeName(OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return "bool";
    case OptionType::kInt:
      return "int";
    case OptionType::kFloat:
      return "float";
    case OptionType::kString:
      return "string";
  }
  return "unknown";
}

OptionType TypeOf(const OptionValue& value) {
  return static_cast<OptionType>(value.index());
}

std::string OptionValueToString(const OptionValue& value) {
  switch (TypeOf(value)) {
    case OptionType::kBool:
      return std::get<bool>(value) ? "true" : "false";
    case OptionType::kInt:
      return absl::StrCat(std::get<int64_t>(value));
    case OptionType::kFloat:
      return FloatToString(std::get<double>(value));
    case OptionType::kString:
      return absl::StrCat("'", std::get<std::string>(value), "'");
  }
  return "unknown";
}

const OptionValue& Options::Get(absl::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (info_->options[i].name == name) return values_[i];
  }
  LOG(FATAL) << "pass " << info_->name << " declares no option " << name;
}

bool Options::Bool(absl::string_view name) const {
  return std::get<bool>(Get(name));
}

int64_t Options::Int(absl::string_view name) const {
  return std::get<int64_t>(Get(name));
}

double Options::Float(absl::string_view name) const {
  return std::get<double>(Get(name));
}

const std::string& Options::String(absl::string_view name) const {
  return std::get<std::string>(Get(name));
}

const std::vector<PassInfo>& AllPasses() {
  static const auto* passes = [] {
    auto* all = new std::vector<PassInfo>();
    for (auto* part : {&SimplifierPasses, &ExpanderPasses, &LoweringPasses,
                       &BackendPasses, &PipelinePasses}) {
      for (PassInfo& pass : part()) all->push_back(std::move(pass));
    }
    std::sort(
        all->begin(), all->end(),
        [](const PassInfo& a, const PassInfo& b) { return a.name < b.name; });
    return all;
  }();
  return *passes;
}

absl::StatusOr<const PassInfo*> FindPass(absl::string_view name) {
  const std::vector<PassInfo>& passes = AllPasses();
  auto found = std::lower_bound(
      passes.begin(), passes.end(), name,
      [](const PassInfo& pass, absl::string_view n) { return pass.name < n; });
  if (found != passes.end() && found->name == name) return &*found;
  for (const ExcludedPass& excluded : ExcludedPasses()) {
    if (excluded.name == name) {
      return Error(kUnknownPassError,
                   absl::StrCat("XLA's pass '", name,
                                "' is not supported: ", excluded.reason));
    }
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> names;
  for (const PassInfo& pass : passes) {
    names.push_back({pass.name, {pass.name, pass.class_name}});
  }
  return Error(
      kUnknownPassError,
      absl::StrCat("no pass is named '", name, "'", DidYouMean(name, names),
                   "`hloenv passes` lists all ", passes.size()));
}

absl::StatusOr<Options> ResolveOptions(const PassInfo& info,
                                       const PassSpec& spec) {
  CHECK_EQ(info.name, spec.name);
  Options options;
  options.info_ = &info;
  for (const OptionInfo& option : info.options) {
    options.values_.push_back(option.default_value);
  }
  std::vector<bool> given(info.options.size(), false);
  for (const auto& [name, value] : spec.options) {
    auto option = std::find_if(
        info.options.begin(), info.options.end(),
        [&name = name](const OptionInfo& o) { return o.name == name; });
    if (option == info.options.end()) {
      std::vector<std::pair<std::string, std::vector<std::string>>> names;
      std::vector<std::string> known;
      for (const OptionInfo& o : info.options) {
        names.push_back({o.name, {o.name}});
        known.push_back(
            absl::StrCat(o.name, " (", OptionTypeName(o.type()), ")"));
      }
      return Error(
          kPassOptionError,
          absl::StrCat(
              "pass '", info.name, "' has no option '", name, "' (given ",
              ValueAndType(value), ")", DidYouMean(name, names), "It takes ",
              known.empty() ? "no options" : absl::StrJoin(known, ", ")));
    }
    const size_t index = option - info.options.begin();
    if (given[index]) {
      return Error(kPassOptionError,
                   absl::StrCat("option '", name, "' of pass '", info.name,
                                "' is given twice"));
    }
    given[index] = true;
    HLOENV_ASSIGN_OR_RETURN(options.values_[index],
                            CheckValue(info, *option, value));
  }
  return options;
}

absl::Status CheckPass(const PassSpec& spec) {
  HLOENV_ASSIGN_OR_RETURN(const PassInfo* info, FindPass(spec.name));
  return ResolveOptions(*info, spec).status();
}

absl::StatusOr<std::unique_ptr<xla::HloPassInterface>> MakePass(
    const PassSpec& spec) {
  HLOENV_ASSIGN_OR_RETURN(const PassInfo* info, FindPass(spec.name));
  HLOENV_ASSIGN_OR_RETURN(Options options, ResolveOptions(*info, spec));
  if (info->is_candidate()) {
    return Error(kPassError,
                 absl::StrCat("pass '", spec.name,
                              "' proposes rewrites one by one and cannot run "
                              "on a module; capture its alternatives instead"));
  }
  return info->make(options);
}

absl::StatusOr<std::string> XlaPassName(absl::string_view name) {
  PassSpec spec;
  spec.name = std::string(name);
  HLOENV_ASSIGN_OR_RETURN(std::unique_ptr<xla::HloPassInterface> pass,
                          MakePass(spec));
  return std::string(pass->name());
}

bool IsCandidatePass(absl::string_view name) {
  auto info = FindPass(name);
  return info.ok() && (*info)->is_candidate();
}

}  // namespace hloenv
