// SPDX-License-Identifier: Apache-2.0
// Candidate passes that consist of local rewrite rules.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "hlo/known_values.h"
#include "hlo/magnitudes.h"
#include "hlo/self_comparison.h"
#include "passes/proposals/candidate.h"
#include "passes/registry.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

class RuleContext;

// A rewrite rule. Its name is a bool option of its pass, which enables it.
struct Rule {
  absl::string_view name;
  // When it applies, its result, and whether floats round differently.
  absl::string_view doc;
  // Appends the proposals whose (last) original is `instruction`.
  void (*propose)(const xla::HloInstruction& instruction, RuleContext& context,
                  std::vector<Proposal>& proposals);
};

// Dependences between the instructions of one computation.
class Dependence {
 public:
  explicit Dependence(const xla::HloComputation& computation);

  const std::vector<const xla::HloInstruction*>& post_order() const {
    return post_order_;
  }
  // The place of `instruction` in that.
  size_t PlaceOf(const xla::HloInstruction& instruction) const {
    return position_.at(&instruction);
  }
  // Whether `to` depends on `from`, or finding that out would take too long.
  bool Reaches(const xla::HloInstruction& from, const xla::HloInstruction& to);
  // Whether the computation's result or a side effect depends on it.
  bool IsLive(const xla::HloInstruction& instruction);
  // The users of `instruction`, in post order; until the next call.
  const std::vector<const xla::HloInstruction*>& UsersInOrder(
      const xla::HloInstruction& instruction);
  // Those of them before `user`, one of them, `count` at most.
  absl::Span<const xla::HloInstruction* const> UsersBefore(
      const xla::HloInstruction& instruction, const xla::HloInstruction& user,
      size_t count);

 private:
  std::vector<const xla::HloInstruction*> post_order_;
  absl::flat_hash_map<const xla::HloInstruction*, size_t> position_;
  absl::flat_hash_map<const xla::HloInstruction*,
                      std::vector<const xla::HloInstruction*>>
      users_;
  std::vector<char> is_live_;      // by position; empty until asked
  std::vector<uint64_t> visited_;  // by position: stamp of the last search
  uint64_t stamp_ = 0;
};

// What rules ask about a module, analysed on first use.
class LazyFacts {
 public:
  explicit LazyFacts(const xla::HloModule& module) : module_(module) {}
  Extremes ExtremesOf(const xla::HloInstruction& instruction) {
    if (!magnitudes_.has_value()) magnitudes_.emplace(module_, &known_);
    return magnitudes_->Of(instruction);
  }
  KnownValue Known(const xla::HloInstruction& instruction) {
    return known_.Of(instruction);
  }
  bool IsCompared(const xla::HloInstruction& instruction) {
    if (!comparisons_.has_value()) comparisons_.emplace(module_);
    return comparisons_->IsCompared(instruction);
  }

 private:
  // Elements of an array, and of all, up to which they are evaluated: some
  // milliseconds, and a quarter of a second.
  static constexpr int64_t kMaxElements = int64_t{1} << 18;
  static constexpr int64_t kMaxWork = int64_t{1} << 23;

  const xla::HloModule& module_;
  KnownValues known_{kMaxElements, kMaxWork};
  std::optional<Magnitudes> magnitudes_;
  std::optional<SelfComparisons> comparisons_;
};

// Information for rules about the computation that they run on.
class RuleContext : public Dependence {
 public:
  // `facts`, of the computation's module, must outlive this.
  RuleContext(const xla::HloComputation& computation, LazyFacts* facts)
      : Dependence(computation), facts_(facts) {}

  // The extreme values that the float array `instruction` may contain.
  Extremes ExtremesOf(const xla::HloInstruction& instruction) {
    return facts_->ExtremesOf(instruction);
  }
  // What the module itself determines of the value of an array.
  KnownValue Known(const xla::HloInstruction& instruction) {
    return facts_->Known(instruction);
  }
  // Whether the result is compared with a number selected from it, as in
  // x == max(x). Where the backend has it in memory, arithmetic that it may
  // compute once for each reader must not take its place.
  bool IsCompared(const xla::HloInstruction& instruction) {
    return facts_->IsCompared(instruction);
  }
  // What the rules of a pass have found out about this computation.
  template <typename T>
  T& Memo() {
    std::shared_ptr<void>& memo = memos_[std::type_index(typeid(T))];
    if (memo == nullptr) memo = std::make_shared<T>();
    return *static_cast<T*>(memo.get());
  }

 private:
  LazyFacts* const facts_;
  absl::flat_hash_map<std::type_index, std::shared_ptr<void>> memos_;
};

// The catalog entry of a pass with these rules, all enabled by default.
PassInfo RulePass(std::string name, std::string class_name, std::string summary,
                  absl::Span<const Rule> rules,
                  std::unique_ptr<CandidatePass> (*make)(const Options&));
// `is_meant`, if given, selects the instructions that rules are applied to.
std::unique_ptr<CandidatePass> MakeRulePass(
    absl::string_view name, absl::Span<const Rule> rules,
    const Options& options,
    std::function<bool(const xla::HloInstruction&)> is_meant = nullptr);

inline int64_t RankOf(const xla::Shape& shape) {
  return static_cast<int64_t>(shape.dimensions().size());
}

// The computations in which rules may rewrite: the entry and those of control
// flow, but not fused computations, reducers and other embedded ones.
std::vector<const xla::HloComputation*> RewritableComputations(
    const xla::HloModule& module);

// Whether a rule may make an array of so many elements, where there are arrays
// of `others` elements already: a larger one may not fit into memory.
bool FitsBeside(double elements, double others);

// Whether another value of the same shape may take the place of `instruction`:
// a static array without side effects, control dependencies or sharding.
bool IsReplaceable(const xla::HloInstruction& instruction);

// Whether a rule may rewrite `instruction`: it is replaceable and row-major.
bool IsPlain(const xla::HloInstruction& instruction);

// What takes the place of an instruction: itself, where it has an array, or the
// live elements of its tuple, in post order; nothing where that is a root.
std::vector<const xla::HloInstruction*> LiveElementsOf(
    const xla::HloInstruction& instruction, RuleContext& context);

// Adds the part [start, limit) of `value` along `dimension`.
absl::StatusOr<xla::HloInstruction*> SliceAlong(xla::HloInstruction* value,
                                                int64_t dimension,
                                                int64_t start, int64_t limit);

// Adds a clone of `original` with this shape to the computation of `operands`,
// which must not be empty. The clone calls the copies of computations in that
// module; a fusion gets a new fused computation.
xla::HloInstruction* CloneBeside(
    const xla::HloInstruction& original, const xla::Shape& shape,
    absl::Span<xla::HloInstruction* const> operands);

// The copy of what `original` calls in the module of `operands`, which are like
// its own.
absl::StatusOr<xla::HloComputation*> CalledBeside(
    const xla::HloInstruction& original,
    absl::Span<xla::HloInstruction* const> operands);

// Adds a proposal that replaces `original` with the result of `build` on the
// images of `reads`, in order. Repeated reads are allowed.
using BuildFn = std::function<absl::StatusOr<xla::HloInstruction*>(
    absl::Span<xla::HloInstruction* const> reads)>;
void Propose(const Rule& rule, const xla::HloInstruction& original,
             std::vector<const xla::HloInstruction*> reads, BuildFn build,
             std::vector<Proposal>& proposals);
// As Propose, for several originals that are replaced together.
using BuildManyFn =
    std::function<absl::StatusOr<std::vector<xla::HloInstruction*>>(
        absl::Span<xla::HloInstruction* const> reads)>;
void ProposeMany(const Rule& rule,
                 std::vector<const xla::HloInstruction*> originals,
                 std::vector<const xla::HloInstruction*> reads,
                 BuildManyFn build, std::vector<Proposal>& proposals);

}  // namespace hloenv
