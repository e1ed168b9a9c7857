// SPDX-License-Identifier: Apache-2.0
// The passes that hloenv knows by name, with typed options.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace xla {
class HloModule;
class HloPassInterface;
}  // namespace xla

namespace hloenv {

using OptionValue = std::variant<bool, int64_t, double, std::string>;

// The order is that of OptionValue, so `value.index()` is the type.
enum class OptionType { kBool, kInt, kFloat, kString };

// "bool", "int", "float" or "string".
absl::string_view OptionTypeName(OptionType type);
OptionType TypeOf(const OptionValue& value);
// For messages: true, 3, 0.5, 'text'.
std::string OptionValueToString(const OptionValue& value);

// A pass by name with the options that differ from its defaults.
struct PassSpec {
  std::string name;
  std::vector<std::pair<std::string, OptionValue>> options;
};

// One option of a pass. The default determines the type.
struct OptionInfo {
  std::string name;
  OptionValue default_value;
  std::string doc;                        // one sentence
  std::vector<std::string> allowed = {};  // string options: the values
  std::optional<int64_t> minimum = {};    // int options

  OptionType type() const { return TypeOf(default_value); }
};

class CandidatePass;
struct PassInfo;

// A value of the declared type for every option of one pass. CHECK-fails when
// an undeclared option is read.
class Options {
 public:
  bool Bool(absl::string_view name) const;
  int64_t Int(absl::string_view name) const;
  double Float(absl::string_view name) const;
  const std::string& String(absl::string_view name) const;

 private:
  friend absl::StatusOr<Options> ResolveOptions(const PassInfo&,
                                                const PassSpec&);
  const OptionValue& Get(absl::string_view name) const;

  const PassInfo* info_ = nullptr;
  std::vector<OptionValue> values_;  // in the order of info_->options
};

struct PassInfo {
  std::string name;        // XLA's: the result of `pass->name()`
  std::string class_name;  // XLA's C++ class
  std::string summary;     // one sentence
  std::vector<OptionInfo> options;
  // Creates a pass object. Null for hloenv's candidate passes, which propose
  // single rewrites (candidate.h) instead of running on a module.
  std::unique_ptr<xla::HloPassInterface> (*make)(const Options& options);
  // One of these is set for a candidate pass: it creates the pass object, or
  // lists XLA passes whose rewrites on `module` it proposes, defaults first.
  std::unique_ptr<CandidatePass> (*make_candidate)(const Options& options) =
      nullptr;
  std::vector<PassSpec> (*union_of)(const Options& options,
                                    const xla::HloModule& module) = nullptr;

  bool is_candidate() const { return make == nullptr; }
};

// Every pass, sorted by name. The objects live as long as the process.
const std::vector<PassInfo>& AllPasses();

// An XLA pass that is not in AllPasses.
struct ExcludedPass {
  std::string name;
  std::string reason;
};
// Sorted by name.
const std::vector<ExcludedPass>& ExcludedPasses();

// UnknownPassError, with a similar name, when there is none.
absl::StatusOr<const PassInfo*> FindPass(absl::string_view name);

// The options of `spec`, and defaults for all others. Float options accept
// ints. PassOptionError for other type mismatches, unknown names, names given
// twice, and values outside `allowed` or below `minimum`. `spec.name` must be
// `info.name`.
absl::StatusOr<Options> ResolveOptions(const PassInfo& info,
                                       const PassSpec& spec);

// Checks the name and the options of `spec`. Errors: UnknownPassError,
// PassOptionError.
absl::Status CheckPass(const PassSpec& spec);

// Creates an XLA pass object. Use an object for one run only, because XLA's
// passes cache data of the module. Errors: those of CheckPass, and PassError
// for a candidate pass, which has no such object.
absl::StatusOr<std::unique_ptr<xla::HloPassInterface>> MakePass(
    const PassSpec& spec);

// The result of the pass object's name(). Errors as MakePass.
absl::StatusOr<std::string> XlaPassName(absl::string_view name);

// Whether `name` is a candidate pass. False for unknown names.
bool IsCandidatePass(absl::string_view name);

}  // namespace hloenv
