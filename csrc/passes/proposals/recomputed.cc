// SPDX-License-Identifier: Apache-2.0
// Finds arrays that a kernel of XLA's fusion would compute very many times.
//
// The kernel is functions that call each other. Operations that are computed at
// the same places are one function. What is read at several places, as by
// slices, or by several operands of a concatenation, is a function that each of
// its readers calls; LLVM inlines short ones, and then finds what is the same.
// Where one step of a written out recurrence reads several results of the steps
// before it, the number of calls is multiplied in each. What a concatenation or
// a pad computes is not: XLA writes its result to memory where a kernel would
// read it more than once.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "passes/proposals/candidate.h"
#include "passes/proposals/cut_rules.h"
#include "passes/proposals/kernel_cone.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// How often one array is computed, and additions of all of its elements
// together, from which on it is worth to keep some arrays.
constexpr double kMinGrown = 256;
constexpr double kMinWorth = 1 << 21;
// From how often on, and from how many additions on, which take longer than to
// start a kernel, an array is kept then.
constexpr double kMinTimes = 16;
constexpr double kMinAdditions = 1 << 16;
constexpr double kMaxTimes = 1e9;
// Additions below which a function is inlined, and callers up to which.
constexpr int64_t kMinCalled = 8;
constexpr size_t kMaxCallers = 64;
// Operations that are counted as computed along with one.
constexpr size_t kMaxAlong = 32;

// A function, at some places; in it, each operation is computed once.
using Function = int64_t;
// That of all that is in memory. Its readers there are not counted: XLA's own
// fusion decides which of them compute it again.
constexpr Function kInMemory = 0;
// How often functions compute the elements of an array.
using Callers = absl::flat_hash_map<Function, double>;

class Functions {
 public:
  Functions(absl::FunctionRef<bool(const HloInstruction&)> is_kept,
            absl::FunctionRef<bool(const HloInstruction&)> can_be_kept)
      : is_kept_(is_kept), can_be_kept_(can_be_kept) {}

  // Looks at all instructions, each after its users; `keeps` is whether what is
  // computed many times is kept.
  void VisitAll(const std::vector<HloInstruction*>& post_order, bool keeps);

  // Whether an array is computed so often that it is worth it.
  bool has_grown() const { return has_grown_; }
  absl::flat_hash_set<const HloInstruction*> Found() && {
    return std::move(found_);
  }

 private:
  void Visit(const HloInstruction& instruction, bool keeps);
  Callers CallersOf(const HloInstruction& instruction);
  void VisitParts(const HloInstruction& concatenation);
  Function OfPart(const HloInstruction& slice, const Callers& callers);

  const absl::FunctionRef<bool(const HloInstruction&)> is_kept_;
  const absl::FunctionRef<bool(const HloInstruction&)> can_be_kept_;
  // Where each instruction is computed, and what calls parts of concatenations.
  absl::flat_hash_map<const HloInstruction*, Callers> places_;
  absl::flat_hash_map<const HloInstruction*, Callers> callers_of_parts_;
  absl::flat_hash_set<const HloInstruction*> found_;
  // Functions of what is kept: these read their operands from memory.
  absl::flat_hash_set<Function> kernels_;
  // Those of slices that have the same part for the same caller.
  using Part = std::pair<Function, std::array<std::vector<int64_t>, 3>>;
  absl::flat_hash_map<Part, Function> parts_;
  Function last_ = kInMemory;
  bool has_grown_ = false;
};

double SumOf(const Callers& callers) {
  double times = 0;
  for (const auto& [caller, each] : callers) times += each;
  return std::min(times, kMaxTimes);
}

// Adds callers of a part of an array, whose share of it is `share`.
void Add(const Callers& added, double share, Callers& callers) {
  for (const auto& [caller, times] : added) {
    double& all = callers[caller];
    all = std::max(all, share * times);
  }
}

// Whether XLA writes it to memory where a kernel would read it at several
// places.
bool IsJoined(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kConcatenate ||
         instruction.opcode() == HloOpcode::kPad;
}

bool IsFused(const HloInstruction& instruction) {
  return instruction.shape().IsArray() && IsPlain(instruction) &&
         (MovesElements(instruction) ||
          instruction.opcode() == HloOpcode::kReshape ||
          (instruction.IsElementwise() && instruction.operand_count() > 0));
}

// Whether XLA fuses it with what it reads, which it then may compute again.
bool MayBeFused(const HloInstruction& user) {
  switch (user.opcode()) {
    case HloOpcode::kBroadcast:
    case HloOpcode::kDynamicUpdateSlice:
    case HloOpcode::kGather:
    case HloOpcode::kReduce:
    case HloOpcode::kReduceWindow:
      return true;
    default:
      return IsFused(user);
  }
}

// Finds the callers of each part of a concatenation, which is computed in a
// branch of its own. XLA takes slices of one part from that part.
void Functions::VisitParts(const HloInstruction& concatenation) {
  const bool is_sliced =
      !concatenation.IsRoot() &&
      absl::c_all_of(concatenation.users(), [](const HloInstruction* user) {
        return user->opcode() == HloOpcode::kSlice;
      });
  const int64_t axis = concatenation.concatenate_dimension();
  const double times = SumOf(places_.at(&concatenation));
  // Where each part begins, and the end.
  std::vector<int64_t> starts = {0};
  for (const HloInstruction* part : concatenation.operands()) {
    starts.push_back(starts.back() + part->shape().dimensions(axis));
    if (!is_sliced) callers_of_parts_[part][++last_] = times;
  }
  if (!is_sliced) return;
  // In memory, each part is computed once, for all slices that need its whole.
  const bool is_in_memory = places_.at(&concatenation).contains(kInMemory);
  const Function first_part = last_ + 1;
  last_ += concatenation.operand_count();
  for (const HloInstruction* slice : concatenation.users()) {
    const int64_t first = slice->slice_starts(axis);
    const int64_t limit = slice->slice_limits(axis);
    auto part = absl::c_upper_bound(starts, first) - starts.begin() - 1;
    for (; part < concatenation.operand_count() && starts[part] < limit;
         ++part) {
      if (starts[part + 1] <= first) continue;  // an empty part
      Callers& callers = callers_of_parts_[concatenation.operand(part)];
      if (first >= starts[part] && limit <= starts[part + 1]) {
        Add(places_.at(slice), 1, callers);
      } else if (is_in_memory) {
        callers[first_part + part] = 1;
      } else {
        callers[++last_] = SumOf(places_.at(slice));
      }
    }
  }
}

// How often the functions that read it compute its elements, by function.
Callers Functions::CallersOf(const HloInstruction& instruction) {
  Callers callers;
  const auto elements =
      static_cast<double>(xla::ShapeUtil::ElementsIn(instruction.shape()));
  for (const HloInstruction* user : instruction.users()) {
    if (!IsFused(*user)) {
      callers[kInMemory] = 1;
    } else if (user->opcode() != HloOpcode::kConcatenate) {
      const auto read =
          static_cast<double>(xla::ShapeUtil::ElementsIn(user->shape()));
      Add(places_.at(user), std::min(1.0, read / elements), callers);
    }
  }
  const auto parts = callers_of_parts_.find(&instruction);
  if (parts != callers_of_parts_.end()) Add(parts->second, 1, callers);
  return callers;
}

Function Functions::OfPart(const HloInstruction& slice,
                           const Callers& callers) {
  if (slice.opcode() != HloOpcode::kSlice || callers.size() != 1) {
    return ++last_;
  }
  const auto [found, is_new] = parts_.try_emplace(
      Part{callers.begin()->first,
           {slice.slice_starts(), slice.slice_limits(), slice.slice_strides()}},
      last_ + 1);
  if (is_new) ++last_;
  return found->second;
}

// Additions that take as long as one element of what only `instruction` needs.
int64_t CostAlong(const HloInstruction& instruction) {
  std::vector<const HloInstruction*> along = {&instruction};
  int64_t cost = 0;
  for (size_t i = 0; i < along.size() && i < kMaxAlong; ++i) {
    cost += ElementCost(*along[i]);
    for (const HloInstruction* operand : along[i]->operands()) {
      if (operand->user_count() == 1 && operand->IsElementwise() &&
          operand->operand_count() > 0) {
        along.push_back(operand);
      }
    }
  }
  return cost;
}

void Functions::Visit(const HloInstruction& instruction, bool keeps) {
  Callers& place = places_[&instruction];
  place = {{kInMemory, 1}};
  if (!IsFused(instruction)) return;
  if (is_kept_(instruction)) {
    place = {{++last_, 1}};
    kernels_.insert(last_);
    return;
  }
  if (instruction.IsRoot() ||
      !absl::c_all_of(instruction.users(), [](const HloInstruction* user) {
        return MayBeFused(*user);
      })) {
    return;  // it is in memory, and XLA does not compute it again
  }
  Callers callers = CallersOf(instruction);
  const bool is_shared = callers.size() > 1;
  if (is_shared && absl::c_any_of(callers, [&](const auto& caller) {
        return kernels_.contains(caller.first);
      })) {
    return;  // as several kernels read it
  }
  const double times = SumOf(callers);
  if (IsJoined(instruction) && (is_shared || times > 1)) return;
  if (MovesElements(instruction)) {
    place = {{OfPart(instruction, callers), times}};
    return;
  }
  const int64_t cost = CostAlong(instruction);
  if (is_shared && times >= kMinTimes && can_be_kept_(instruction)) {
    const double additions =
        times * static_cast<double>(cost) *
        static_cast<double>(xla::ShapeUtil::ElementsIn(instruction.shape()));
    has_grown_ |= times >= kMinGrown && additions >= kMinWorth;
    if (keeps && additions >= kMinAdditions) {
      found_.insert(&instruction);
      place = {{++last_, 1}};
      kernels_.insert(last_);
      return;
    }
  }
  const bool is_called =
      is_shared && (cost >= kMinCalled || callers.size() > kMaxCallers);
  place = is_called ? Callers{{++last_, times}} : std::move(callers);
}

void Functions::VisitAll(const std::vector<HloInstruction*>& post_order,
                         bool keeps) {
  for (auto each = post_order.rbegin(); each != post_order.rend(); ++each) {
    Visit(**each, keeps);
    if ((*each)->opcode() == HloOpcode::kConcatenate && IsFused(**each)) {
      VisitParts(**each);
    }
  }
}

}  // namespace

absl::flat_hash_set<const HloInstruction*> FindRecomputed(
    const xla::HloComputation& computation,
    absl::FunctionRef<bool(const HloInstruction&)> is_kept,
    absl::FunctionRef<bool(const HloInstruction&)> can_be_kept) {
  const std::vector<HloInstruction*> order =
      computation.MakeInstructionPostOrder();
  Functions all(is_kept, can_be_kept);
  all.VisitAll(order, /*keeps=*/false);
  if (!all.has_grown()) return {};
  Functions functions(is_kept, can_be_kept);
  functions.VisitAll(order, /*keeps=*/true);
  return std::move(functions).Found();
}

}  // namespace hloenv
