// SPDX-License-Identifier: Apache-2.0
#include "absl/algorithm/container.h"
#include "backend/single_kernel.h"
#include "backend/thunk_order.h"
#include "passes/proposals/region.h"
#include "xla/service/call_graph.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Passes over a computation, each of which finds one run, or what is too short
// for one.
constexpr int kMaxPasses = 256;
// Instructions behind a full run that may still be views of its results.
constexpr int kMaxBehind = 1024;

// What single instructions contain, which each pass asks for.
using Contents = absl::flat_hash_map<const HloInstruction*, KernelContents>;

// Collects one run.
class RunFinder {
 public:
  RunFinder(const RunLimits& limits, Contents* contents)
      : limits_(limits), contents_(*contents) {}

  // Adds the instruction to the run if possible; call in post order. Otherwise
  // nothing that depends on both it and the run can be a member.
  bool Add(const HloInstruction& instruction) {
    const bool reads_run = ReadsAny(instruction, members_);
    const bool reads_later = ReadsAny(instruction, later_);
    if (!CanBeMember(instruction, reads_run)) {
      if (reads_run || reads_later) later_.insert(&instruction);
      return false;
    }
    const int64_t size = Inside(instruction).num_instructions;
    if (reads_later || num_instructions_ + size > limits_.max_instructions) {
      later_.insert(&instruction);
      return false;
    }
    members_.insert(&instruction);
    run_.push_back(&instruction);
    num_instructions_ += size;
    num_steps_ += IsFree(instruction) ? 0 : 1;
    return true;
  }

  bool IsFull() const { return num_instructions_ >= limits_.max_instructions; }
  bool IsLongEnough() const { return num_steps_ >= limits_.min_steps; }
  std::vector<const HloInstruction*>& run() { return run_; }

 private:
  using Set = absl::flat_hash_set<const HloInstruction*>;

  static bool ReadsAny(const HloInstruction& instruction, const Set& set) {
    return absl::c_any_of(
        instruction.operands(),
        [&set](const HloInstruction* each) { return set.contains(each); });
  }

  bool IsSmall(const xla::Shape& shape) const {
    return shape.IsArray() &&
           xla::ShapeUtil::ByteSizeOf(shape) <= limits_.max_bytes;
  }

  bool CanBeMember(const HloInstruction& instruction, bool reads_run) const {
    switch (instruction.opcode()) {
      case HloOpcode::kBitcast:
      case HloOpcode::kGetTupleElement:
        return reads_run && instruction.shape().IsArray() &&
               !instruction.HasControlDependencies() &&
               !instruction.has_sharding();
      case HloOpcode::kConstant:
      case HloOpcode::kParameter:
      case HloOpcode::kTuple:
        return false;
      default:
        break;
    }
    if (instruction.has_sharding() || instruction.operand_count() == 0 ||
        xla::GetInstructionCallContext(instruction.opcode()) ==
            xla::CallContext::kControlFlow ||
        !absl::c_all_of(instruction.operands(),
                        [this](const HloInstruction* operand) {
                          return IsSmall(operand->shape());
                        })) {
      return false;
    }
    bool is_small = true;
    xla::ShapeUtil::ForEachLeafShape(
        instruction.shape(),
        [&](const xla::Shape& leaf, const xla::ShapeIndex&) {
          is_small = is_small && IsSmall(leaf);
        });
    const KernelContents& contents = Inside(instruction);
    return is_small && contents.is_supported &&
           contents.num_other_fusions == 0 && contents.num_scatters == 0;
  }

  const KernelContents& Inside(const HloInstruction& instruction) const {
    const auto [found, is_new] = contents_.try_emplace(&instruction);
    if (is_new) found->second = ContentsOf(instruction);
    return found->second;
  }

  const RunLimits& limits_;
  Contents& contents_;
  Set members_;
  Set later_;  // not members, but depend on one
  std::vector<const HloInstruction*> run_;
  int64_t num_instructions_ = 0;
  int64_t num_steps_ = 0;
};

}  // namespace

std::vector<std::vector<const HloInstruction*>> StraightRuns(
    const HloComputation& computation, const RunLimits& limits) {
  std::vector<std::vector<const HloInstruction*>> runs;
  std::vector<const HloInstruction*> left;
  for (const HloInstruction* instruction :
       computation.MakeInstructionPostOrder()) {
    if (instruction->operand_count() > 0) left.push_back(instruction);
  }
  Contents contents;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    RunFinder finder(limits, &contents);
    std::vector<const HloInstruction*> others;
    int behind = 0;
    for (const HloInstruction* instruction : left) {
      const bool is_looked_at = behind < kMaxBehind;
      behind += finder.IsFull() ? 1 : 0;
      if (!is_looked_at || !finder.Add(*instruction)) {
        others.push_back(instruction);
      }
    }
    if (others.size() == left.size()) return runs;
    if (finder.IsLongEnough()) runs.push_back(std::move(finder.run()));
    left = std::move(others);
  }
  return runs;
}

std::vector<const HloInstruction*> ResultsOfRun(
    const std::vector<const HloInstruction*>& members) {
  const absl::flat_hash_set<const HloInstruction*> inside(members.begin(),
                                                          members.end());
  std::vector<const HloInstruction*> results;
  for (const HloInstruction* member : members) {
    const bool is_read = absl::c_any_of(
        member->users(),
        [&](const HloInstruction* user) { return !inside.contains(user); });
    if (is_read || member->IsRoot()) results.push_back(member);
  }
  return results;
}

}  // namespace hloenv
