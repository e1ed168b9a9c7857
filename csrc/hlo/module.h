// SPDX-License-Identifier: Apache-2.0
// An HLO module as a value: print, verify, count. hlo/read.h makes them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace xla {
class HloModule;
class Shape;
}  // namespace xla

namespace hloenv {

struct Analysis;

// One flat leaf of a module's inputs or outputs.
struct ArraySpec {
  std::string dtype;  // XLA's lower-case name: "f32", "pred", "token", ...
  std::vector<int64_t> dims;
  std::vector<int64_t> layout;  // minor to major; empty when not set
};

// The result of XLA's cost analysis for the entry computation.
struct ModuleCost {
  double flops = 0;
  double bytes_accessed = 0;
  double transcendentals = 0;
};

// An immutable HLO module. Copies share it, so a copy is a cheap snapshot, and
// threads may read one module at the same time. To change a module, change a
// clone and make a new Module of it.
class Module {
 public:
  // Takes `hlo` over. Dead instructions stay; ids are made dense.
  explicit Module(std::unique_ptr<xla::HloModule> hlo);

  const xla::HloModule& hlo() const { return *state_->hlo; }

  // Computed on first use, by whichever thread comes first, and shared by all
  // copies.
  const Analysis& analysis() const;

  // A deep copy with the same names.
  std::unique_ptr<xla::HloModule> CloneHlo() const;
  Module Clone() const;

  // The pipeline position saved in an attribute of the module; empty if there
  // is none.
  std::string note() const;
  // A deep copy with this note; without a note if `note` is empty.
  Module WithNote(absl::string_view note) const;

  // Text that ReadText reads; without `all_constants`, those of more than ten
  // elements are "{...}", and it does not.
  std::string ToText(bool all_constants = true) const;
  std::string ToProto() const;

  // Runs XLA's verifier on a clone; the error carries InvalidModuleError.
  absl::Status Verify(bool layout_sensitive = false) const;

  std::string name() const;
  int64_t instruction_count() const;
  int64_t computation_count() const;
  std::map<std::string, int64_t> OpcodeCounts() const;
  absl::StatusOr<ModuleCost> Cost() const;

  std::vector<ArraySpec> InputSpecs() const;
  std::vector<ArraySpec> OutputSpecs() const;
  // Types, shapes and layouts of all parameters and of the result, as in the
  // module's text: what a caller of the compiled module relies on.
  std::string EntryLayout() const;

 private:
  struct State {
    std::unique_ptr<const xla::HloModule> hlo;
    std::once_flag analysis_flag;
    std::unique_ptr<const Analysis> analysis;

    State();
    ~State();
  };
  std::shared_ptr<State> state_;
};

// The flat leaves of `shape`, in XLA's order.
std::vector<ArraySpec> FlatSpecs(const xla::Shape& shape);

}  // namespace hloenv
