// SPDX-License-Identifier: Apache-2.0
// Candidate passes made of local rules.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "hlo/magnitudes.h"
#include "passes/proposals/candidate.h"
#include "passes/registry.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

class RuleContext;

// One way to rewrite. Its name is a bool option of its pass, which turns it on.
struct Rule {
  absl::string_view name;
  // When it applies, what it makes, and whether floats round differently.
  absl::string_view doc;
  // Appends what it would do with `instruction` as the (last) original.
  void (*propose)(const xla::HloInstruction& instruction, RuleContext& context,
                  std::vector<Proposal>& proposals);
};

// What depends on what in one computation.
class Dependence {
 public:
  explicit Dependence(const xla::HloComputation& computation);

  const std::vector<const xla::HloInstruction*>& post_order() const {
    return post_order_;
  }
  // Whether `to` depends on `from`.
  bool Reaches(const xla::HloInstruction& from, const xla::HloInstruction& to);
  // The users of `instruction`, in post order.
  std::vector<const xla::HloInstruction*> UsersInOrder(
      const xla::HloInstruction& instruction) const;

 private:
  std::vector<const xla::HloInstruction*> post_order_;
  absl::flat_hash_map<const xla::HloInstruction*, size_t> position_;
  std::vector<uint64_t> visited_;  // by position: the search that came by last
  uint64_t stamp_ = 0;
};

// The magnitudes of a module, analysed when a rule first asks.
class LazyMagnitudes {
 public:
  explicit LazyMagnitudes(const xla::HloModule& module) : module_(module) {}
  Extremes Of(const xla::HloInstruction& instruction) {
    if (!magnitudes_.has_value()) magnitudes_.emplace(module_);
    return magnitudes_->Of(instruction);
  }

 private:
  const xla::HloModule& module_;
  std::optional<Magnitudes> magnitudes_;
};

// What a rule may ask about the computation that it looks at.
class RuleContext : public Dependence {
 public:
  // `magnitudes`, of the computation's module, must outlive this.
  RuleContext(const xla::HloComputation& computation,
              LazyMagnitudes* magnitudes)
      : Dependence(computation), magnitudes_(magnitudes) {}

  // What the float array `instruction` may hold beside moderate values.
  Extremes ExtremesOf(const xla::HloInstruction& instruction) {
    return magnitudes_->Of(instruction);
  }

 private:
  LazyMagnitudes* const magnitudes_;
};

// The entry of a pass of these rules in the catalog, all of them on by default.
PassInfo RulePass(std::string name, std::string class_name, std::string summary,
                  absl::Span<const Rule> rules,
                  std::unique_ptr<CandidatePass> (*make)(const Options&));
// Rules are asked only about instructions that `is_meant` is true of, if given.
std::unique_ptr<CandidatePass> MakeRulePass(
    absl::string_view name, absl::Span<const Rule> rules,
    const Options& options,
    std::function<bool(const xla::HloInstruction&)> is_meant = nullptr);

inline int64_t RankOf(const xla::Shape& shape) {
  return static_cast<int64_t>(shape.dimensions().size());
}

// Whether a rule may take `instruction` apart: an array of static shape with
// the layout that JAX gives, without effects, control dependencies or sharding.
bool IsPlain(const xla::HloInstruction& instruction);

// A clone of `original` beside its operands, of which there is one at least,
// with this shape. It calls their module's own copies of computations; a fusion
// gets one of its own.
xla::HloInstruction* CloneBeside(
    const xla::HloInstruction& original, const xla::Shape& shape,
    absl::Span<xla::HloInstruction* const> operands);

// Adds a proposal that replaces `original` by what `build` makes of the images
// of `reads`, in their order. Repeated reads are allowed.
using BuildFn = std::function<absl::StatusOr<xla::HloInstruction*>(
    absl::Span<xla::HloInstruction* const> reads)>;
void Propose(const Rule& rule, const xla::HloInstruction& original,
             std::vector<const xla::HloInstruction*> reads, BuildFn build,
             std::vector<Proposal>& proposals);
// The same for several originals that are replaced together.
using BuildManyFn =
    std::function<absl::StatusOr<std::vector<xla::HloInstruction*>>(
        absl::Span<xla::HloInstruction* const> reads)>;
void ProposeMany(const Rule& rule,
                 std::vector<const xla::HloInstruction*> originals,
                 std::vector<const xla::HloInstruction*> reads,
                 BuildManyFn build, std::vector<Proposal>& proposals);

}  // namespace hloenv
