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
// As a message shows it: true, 3, 0.5, 'text'.
std::string OptionValueToString(const OptionValue& value);

// A pass by name with the options that differ from its defaults.
struct PassSpec {
  std::string name;
  std::vector<std::pair<std::string, OptionValue>> options;
};

// One option of a pass. The default also says the type.
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

// A value for every option of one pass, all of the declared type. Reading an
// option that the pass does not declare is our own bug and ends the process.
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
  std::string name;        // XLA's own: what `pass->name()` returns
  std::string class_name;  // XLA's C++ class
  std::string summary;     // one sentence
  std::vector<OptionInfo> options;
  // A new pass object. Null for our own candidate passes, which propose
  // rewrites one by one (candidate.h) instead of running on a module.
  std::unique_ptr<xla::HloPassInterface> (*make)(const Options& options);
  // Of a candidate pass, one of the two: its object, or XLA passes each of
  // whose rewrites it proposes on `module`, most usual first.
  std::unique_ptr<CandidatePass> (*make_candidate)(const Options& options) =
      nullptr;
  std::vector<PassSpec> (*union_of)(const Options& options,
                                    const xla::HloModule& module) = nullptr;

  bool is_candidate() const { return make == nullptr; }
};

// Every pass, sorted by name. The objects live as long as the process.
const std::vector<PassInfo>& AllPasses();

// A pass of XLA's that is not in AllPasses.
struct ExcludedPass {
  std::string name;
  std::string reason;
};
// Sorted by name.
const std::vector<ExcludedPass>& ExcludedPasses();

// UnknownPassError, with the nearest name, when there is none.
absl::StatusOr<const PassInfo*> FindPass(absl::string_view name);

// Defaults, overwritten by what `spec` gives. An int is taken for a float
// option; every other difference of type is an error, as are unknown names,
// names given twice, and values outside `allowed` or below `minimum`:
// PassOptionError. `spec.name` must be `info.name`.
absl::StatusOr<Options> ResolveOptions(const PassInfo& info,
                                       const PassSpec& spec);

// Checks the name and the options of `spec`. Errors: UnknownPassError,
// PassOptionError.
absl::Status CheckPass(const PassSpec& spec);

// A new XLA pass object. One object serves one run: XLA's passes hold caches of
// the module that they ran on. Errors as CheckPass; a PassError for a candidate
// pass, which has no such object.
absl::StatusOr<std::unique_ptr<xla::HloPassInterface>> MakePass(
    const PassSpec& spec);

// What the pass object says its name is. Errors as MakePass.
absl::StatusOr<std::string> XlaPassName(absl::string_view name);

// Whether `name` is one of our own passes that propose rewrites one by one.
// False for unknown names.
bool IsCandidatePass(absl::string_view name);

}  // namespace hloenv
