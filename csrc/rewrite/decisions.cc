// SPDX-License-Identifier: Apache-2.0
// The layout of decision vectors of a capture, and their validation.
#include "rewrite/capture.h"
#include "support/status.h"

namespace hloenv {

std::vector<int64_t> Capture::NumChoices() const {
  std::vector<int64_t> result;
  result.reserve(alternatives_.size());
  for (const Alternative& alternative : alternatives_) {
    result.push_back(alternative.num_choices());
  }
  return result;
}

std::vector<std::string> Capture::IndivisibleReasons() const {
  std::vector<std::string> result;
  result.resize(pass_names_.size());
  for (const std::unique_ptr<RewriteSource>& source : sources_) {
    if (source->is_indivisible()) {
      result[source->pass()] = source->indivisible_reason();
    }
  }
  return result;
}

absl::StatusOr<std::vector<int64_t>> Capture::DecisionsFor(
    const std::string& name) const {
  const auto it = std::find(pass_names_.begin(), pass_names_.end(), name);
  if (it == pass_names_.end()) {
    std::string given;
    for (const std::string& pass : pass_names_) {
      absl::StrAppend(&given, given.empty() ? "'" : ", '", pass, "'");
    }
    return Error(
        kUnknownPassError,
        absl::StrCat("pass '", name,
                     "' was not captured; the captured passes are ", given));
  }
  const auto wanted = static_cast<int32_t>(it - pass_names_.begin());
  const auto is_wanted = [&](int32_t source) {
    return sources_[source]->pass() == wanted;
  };
  std::vector<int64_t> decisions(alternatives_.size(), 0);
  for (size_t a = 0; a < alternatives_.size(); ++a) {
    const auto& sources = alternatives_[a].sources;
    for (size_t c = 0; c < sources.size(); ++c) {
      if (std::any_of(sources[c].begin(), sources[c].end(), is_wanted)) {
        decisions[a] = static_cast<int64_t>(c) + 1;
        break;
      }
    }
  }
  return decisions;
}

absl::Status Capture::CheckDecisions(absl::Span<const int64_t> decisions,
                                     bool partial) const {
  if (decisions.size() != alternatives_.size()) {
    return Error(kDecisionError,
                 absl::StrCat("there are ", alternatives_.size(),
                              " alternatives, but ", decisions.size(),
                              " decisions were given; give one for each"));
  }
  for (size_t a = 0; a < decisions.size(); ++a) {
    const int64_t num_choices = alternatives_[a].num_choices();
    if (decisions[a] >= num_choices || decisions[a] < (partial ? -1 : 0)) {
      return Error(kDecisionError,
                   absl::StrCat("decision ", a, " is ", decisions[a],
                                ", but alternative ", a,
                                " has choices 0 (the original) "
                                "to ",
                                num_choices - 1,
                                partial ? ", or -1 for undecided" : ""));
    }
  }
  return absl::OkStatus();
}

}  // namespace hloenv
