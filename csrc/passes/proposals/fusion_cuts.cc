// SPDX-License-Identifier: Apache-2.0
// Proposes to write an array to memory that XLA's fusion would compute again
// for each of its readers.
//
// Before:  y = tanh(x)
//          d = pad(y, 0, 1 in front) - pad(y, 0, 1 behind)
// After:   y = call(x), of a computation of the hyperbolic tangent
//          d = ...
//
// Fusion copies an expression into a kernel once, but the kernel computes it
// once for each place that it reads: readers of y at other places, as in the
// gradients of stencils, each compute a hyperbolic tangent. Where a pad or a
// concatenation is what reads it, LLVM makes no vectors of that either. The
// call is not inlined and not fused.
//
// It must not return what it is given: the backend has the result of such a
// call where the parameter is, and may write the result of a fusion that reads
// both there, although it reads the result at other places.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/cut_rules.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/kernel_cone.h"
#include "passes/proposals/reduce_rules.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Of the search for readers of one instruction, and for what it is computed of.
constexpr size_t kMaxVisited = 1024;
// Levels of readers of readers, and their number, up to which they are counted.
constexpr int kMaxLevels = 4;
constexpr double kMaxCounted = 64;
// Additions of a function, such as an exponential; and those from which on an
// expression that is computed again is worth keeping.
constexpr int64_t kFunctionCost = 12;
constexpr int64_t kMinRepeated = 12;
// Additions of a step, which reads the one before in slices along one
// dimension, up to which LLVM finds what the steps after it compute twice.
constexpr int64_t kMaxMerged = 3;
// Gathers from which on it is worth it: each takes long itself.
constexpr size_t kMinGathers = 6;
// Slices, each of about a whole, from which on a concatenation is worth it.
constexpr int64_t kMinPlaces = 4;

// Elements of the last dimension up to which a concatenation along it is slow,
// and below which it is, too, where its parts are in memory. Shorter parts of
// up to half of a row do not matter for functions of reshaped arrays, as of
// points in front of their sines at several frequencies.
constexpr int64_t kMinPart = 8;
constexpr int64_t kMaxPart = 32;

// Whether it is computed of a reshaped array that is computed, too.
bool IsOfReshaped(const HloInstruction& instruction) {
  std::vector<const HloInstruction*> found = {&instruction};
  absl::flat_hash_set<const HloInstruction*> visited = {&instruction};
  for (size_t i = 0; i < found.size() && i < kMaxVisited; ++i) {
    for (const HloInstruction* operand : found[i]->operands()) {
      if (operand->opcode() == HloOpcode::kReshape) {
        const HloInstruction& source = *operand->operand(0);
        if (source.IsElementwise() && source.operand_count() > 0) return true;
      } else if (operand->IsElementwise() && visited.insert(operand).second) {
        found.push_back(operand);
      }
    }
  }
  return false;
}

// Whether LLVM often makes no vectors of what a pad or concatenation computes:
// where rows are padded on both sides along several dimensions, and for a
// concatenation of short parts. `read` is one of them.
bool HasBranches(const HloInstruction& instruction,
                 const HloInstruction& read) {
  const xla::Shape& shape = instruction.shape();
  if (instruction.opcode() == HloOpcode::kPad) {
    const auto& dimensions = instruction.padding_config().dimensions();
    const auto is_padded = [](const auto& each) {
      return each.edge_padding_low() > 0 && each.edge_padding_high() > 0;
    };
    return absl::c_count_if(dimensions, is_padded) > 1 &&
           !is_padded(dimensions[dimensions.size() - 1]);
  }
  if (instruction.opcode() != HloOpcode::kConcatenate) return false;
  const auto last = static_cast<int64_t>(shape.dimensions().size()) - 1;
  if (instruction.concatenate_dimension() != last) return false;
  int64_t shorter = 0;
  for (const HloInstruction* part : instruction.operands()) {
    const int64_t size = part->shape().dimensions(last);
    if (size > kMaxPart) return false;
    if (size < kMinPart) shorter += size;
  }
  if (shorter == 0) return true;
  const bool is_short = read.shape().dimensions().empty() ||
                        read.shape().dimensions().back() < kMinPart;
  return !is_short && 2 * shorter <= shape.dimensions(last) &&
         IsOfReshaped(read);
}

// What reads an instruction, in its fusion.
struct PlaceReaders {
  // What moves its elements, in order of their ids; a concatenation in place of
  // its slices, of which each element is read from one.
  std::vector<const HloInstruction*> moving;
  // Gathers, each of which may be in a kernel of its own; what they read is
  // read in place, too.
  std::vector<const HloInstruction*> gathers;
  bool is_read_in_place = false;
  bool is_complete = true;  // false: not all were looked at
};

PlaceReaders FindReaders(const HloInstruction& instruction) {
  PlaceReaders readers;
  std::vector<const HloInstruction*> stack = {&instruction};
  absl::flat_hash_set<const HloInstruction*> visited = {&instruction};
  while (!stack.empty()) {
    const HloInstruction* top = stack.back();
    stack.pop_back();
    if (top->IsRoot()) readers.is_read_in_place = true;
    for (const HloInstruction* user : top->users()) {
      if (visited.size() > kMaxVisited) {
        readers.is_complete = false;
        return readers;
      }
      if (user->opcode() == HloOpcode::kSlice && user->user_count() == 1 &&
          user->users()[0]->opcode() == HloOpcode::kConcatenate) {
        user = user->users()[0];
      }
      if (!visited.insert(user).second) continue;
      if (MovesElements(*user)) {
        readers.moving.push_back(user);
      } else if (user->IsElementwise() ||
                 user->opcode() == HloOpcode::kReshape) {
        stack.push_back(user);
      } else {
        readers.is_read_in_place = true;
        if (user->opcode() == HloOpcode::kGather && user->operand(0) == top) {
          readers.gathers.push_back(user);
        }
      }
    }
  }
  const auto by_id = [](const HloInstruction* a, const HloInstruction* b) {
    return a->unique_id() < b->unique_id();
  };
  absl::c_sort(readers.moving, by_id);
  absl::c_sort(readers.gathers, by_id);
  if (readers.gathers.size() < kMinGathers) readers.gathers.clear();
  return readers;
}

// Whether reductions of many elements are all that reads it.
bool IsSummed(const HloInstruction& instruction) {
  return !instruction.users().empty() &&
         absl::c_all_of(instruction.users(), [&](const HloInstruction* user) {
           return user->opcode() == HloOpcode::kReduce &&
                  user->operand_count() == 2 &&
                  user->operand(0) == &instruction && HasSlowLoop(*user);
         });
}

// Whether it is computed of parts of arrays, which a reduction would have in
// its loop, an element at a time; but transposed arrays are best read where
// they are.
bool HasParts(const KernelCone& cone) {
  const int64_t elements =
      xla::ShapeUtil::ElementsIn(cone.inside.back()->shape());
  bool has_parts = false;
  for (const HloInstruction* each : cone.inside) {
    if (each->opcode() == HloOpcode::kTranspose) return false;
    has_parts |= MovesElements(*each) &&
                 2 * xla::ShapeUtil::ElementsIn(each->shape()) >= elements;
  }
  return has_parts;
}

enum class Kept { kNone, kRepeated, kBounded, kSummed, kSpread, kRecomputed };

// What has been found out about the instructions of a computation, most of
// which is asked for again and again.
class Cuts {
 public:
  // Which rule keeps it in memory.
  Kept KindOf(const HloInstruction& instruction);

 private:
  const PlaceReaders& ReadersOf(const HloInstruction& instruction);
  double ReadsOf(const HloInstruction& instruction, int level = 0);
  double ReadsOfNext(const HloInstruction& instruction);
  int64_t ExpressionCost(const HloInstruction& instruction);
  bool IsGathered(const HloInstruction& instruction);
  bool HasSingleReader(const HloInstruction& instruction);
  Kept KindOfJoined(const HloInstruction& instruction);
  Kept FindKind(const HloInstruction& instruction);
  Kept KindByReaders(const HloInstruction& instruction);

  absl::flat_hash_map<const HloInstruction*, std::unique_ptr<PlaceReaders>>
      readers_;
  absl::flat_hash_map<std::pair<const HloInstruction*, int>, double> reads_;
  absl::flat_hash_map<const HloInstruction*, Kept> kinds_;  // by readers
  absl::flat_hash_map<const xla::HloComputation*,
                      absl::flat_hash_set<const HloInstruction*>>
      recomputed_;
};

const PlaceReaders& Cuts::ReadersOf(const HloInstruction& instruction) {
  std::unique_ptr<PlaceReaders>& found = readers_[&instruction];
  if (found == nullptr) {
    found = std::make_unique<PlaceReaders>(FindReaders(instruction));
  }
  return *found;
}

// The part that a slice has: starts, limits, strides.
using Part = std::array<std::vector<int64_t>, 3>;

// How often a kernel computes each element of `instruction`: less than once for
// a slice, which reads a part of them.
double Cuts::ReadsOf(const HloInstruction& instruction, int level) {
  const auto known = reads_.find({&instruction, level});
  if (known != reads_.end()) return known->second;
  const PlaceReaders& readers = ReadersOf(instruction);
  const auto elements =
      static_cast<double>(xla::ShapeUtil::ElementsIn(instruction.shape()));
  double reads = readers.is_read_in_place ? 1 : 0;
  // Of slices that nothing moves further: a kernel computes what several of the
  // same part read once.
  absl::flat_hash_set<Part> parts;
  for (const HloInstruction* user : readers.moving) {
    if (reads >= kMaxCounted) break;
    if (user->opcode() == HloOpcode::kSlice &&
        ReadersOf(*user).moving.empty() &&
        !parts
             .insert({user->slice_starts(), user->slice_limits(),
                      user->slice_strides()})
             .second) {
      continue;
    }
    const auto read =
        static_cast<double>(xla::ShapeUtil::ElementsIn(user->shape()));
    const double times =
        level == kMaxLevels ? 1 : std::max(1.0, ReadsOf(*user, level + 1));
    reads += times * std::min(1.0, read / elements);
  }
  reads = std::min(reads, kMaxCounted);
  reads_[{&instruction, level}] = reads;
  return reads;
}

// The dimension along which a slice has a part of an array, without gaps; none
// for several dimensions.
std::optional<int64_t> DimensionOf(const HloInstruction& slice) {
  std::optional<int64_t> found;
  const xla::Shape& whole = slice.operand(0)->shape();
  for (int64_t d = 0; d < RankOf(whole); ++d) {
    if (slice.slice_strides(d) != 1) return std::nullopt;
    if (slice.shape().dimensions(d) == whole.dimensions(d)) continue;
    if (found.has_value()) return std::nullopt;
    found = d;
  }
  return found;
}

// As `ReadsOf`, of the next step alone where it and the one after that read
// slices along one dimension: elements of short steps that several later ones
// need are computed once.
double Cuts::ReadsOfNext(const HloInstruction& instruction) {
  const PlaceReaders& readers = ReadersOf(instruction);
  std::vector<const HloInstruction*> slices = readers.moving;
  for (const HloInstruction* user : readers.moving) {
    const std::vector<const HloInstruction*>& next = ReadersOf(*user).moving;
    slices.insert(slices.end(), next.begin(), next.end());
  }
  std::optional<int64_t> dimension;
  for (const HloInstruction* slice : slices) {
    if (slice->opcode() != HloOpcode::kSlice) return ReadsOf(instruction);
    const std::optional<int64_t> own = DimensionOf(*slice);
    if (!own.has_value() || own != dimension.value_or(*own)) {
      return ReadsOf(instruction);
    }
    dimension = own;
  }
  return ReadsOf(instruction, kMaxLevels);
}

// Additions that take as long as one element of `instruction`, of what has the
// same readers.
int64_t Cuts::ExpressionCost(const HloInstruction& instruction) {
  const PlaceReaders& readers = ReadersOf(instruction);
  int64_t cost = 0;
  std::vector<const HloInstruction*> stack = {&instruction};
  absl::flat_hash_set<const HloInstruction*> visited = {&instruction};
  while (!stack.empty() && cost < kFunctionCost &&
         visited.size() <= kMaxVisited) {
    const HloInstruction* top = stack.back();
    stack.pop_back();
    cost += ElementCost(*top);
    for (const HloInstruction* operand : top->operands()) {
      if ((operand->IsElementwise() ||
           operand->opcode() == HloOpcode::kReshape) &&
          operand->operand_count() > 0 && visited.insert(operand).second) {
        const PlaceReaders& others = ReadersOf(*operand);
        if (others.is_complete && others.moving == readers.moving &&
            others.gathers == readers.gathers) {
          stack.push_back(operand);
        }
      }
    }
  }
  return cost;
}

// Whether it takes long to compute for all gathers that read it.
bool Cuts::IsGathered(const HloInstruction& instruction) {
  const auto elements =
      static_cast<double>(xla::ShapeUtil::ElementsIn(instruction.shape()));
  double reads = 0;
  for (const HloInstruction* gather : ReadersOf(instruction).gathers) {
    const auto read =
        static_cast<double>(xla::ShapeUtil::ElementsIn(gather->shape()));
    reads += std::min(1.0, read / elements);
  }
  return std::lround(reads) >= static_cast<int64_t>(kMinGathers) &&
         std::lround(reads) * ExpressionCost(instruction) >= kMinRepeated;
}

// Whether all that reads `instruction` reads one of its users, which is to be
// kept in its place.
bool Cuts::HasSingleReader(const HloInstruction& instruction) {
  const PlaceReaders& readers = ReadersOf(instruction);
  return absl::c_any_of(instruction.users(), [&](const HloInstruction* user) {
    if (!user->IsElementwise() && user->opcode() != HloOpcode::kReshape) {
      return false;
    }
    const PlaceReaders& others = ReadersOf(*user);
    return others.is_complete && others.moving == readers.moving &&
           others.gathers == readers.gathers &&
           others.is_read_in_place == readers.is_read_in_place;
  });
}

// Of a concatenation, as of an array and its border, that is read at several
// places: each would ask which part it is in.
Kept Cuts::KindOfJoined(const HloInstruction& instruction) {
  const PlaceReaders& readers = ReadersOf(instruction);
  if (!readers.is_complete) return Kept::kNone;
  const auto elements =
      static_cast<double>(xla::ShapeUtil::ElementsIn(instruction.shape()));
  double reads = 0;
  for (const HloInstruction* user : readers.moving) {
    // What moves the slices counts for these.
    if (user->opcode() != HloOpcode::kSlice) return Kept::kNone;
    reads += static_cast<double>(xla::ShapeUtil::ElementsIn(user->shape())) /
             elements;
  }
  return std::lround(reads) >= kMinPlaces ? Kept::kRepeated : Kept::kNone;
}

// Whether a kernel can have it as its result.
bool CanBeKept(const HloInstruction& instruction) {
  if (!instruction.IsElementwise() || instruction.operand_count() == 0 ||
      instruction.IsRoot() || !IsPlain(instruction)) {
    return false;
  }
  // XLA makes no kernel of a selection by a scalar, or a clamp to some, alone.
  return absl::c_all_of(instruction.operands(),
                        [&](const HloInstruction* operand) {
                          return xla::ShapeUtil::SameDimensions(
                              operand->shape(), instruction.shape());
                        });
}

Kept Cuts::KindOf(const HloInstruction& instruction) {
  const Kept kind = KindByReaders(instruction);
  if (kind != Kept::kNone) return kind;
  const auto [found, is_new] = recomputed_.try_emplace(instruction.parent());
  if (is_new) {
    found->second = FindRecomputed(
        *instruction.parent(),
        [&](const HloInstruction& each) {
          return KindByReaders(each) != Kept::kNone;
        },
        CanBeKept);
  }
  return found->second.contains(&instruction) ? Kept::kRecomputed : Kept::kNone;
}

Kept Cuts::KindByReaders(const HloInstruction& instruction) {
  const auto known = kinds_.find(&instruction);
  if (known != kinds_.end()) return known->second;
  return kinds_[&instruction] = FindKind(instruction);
}

Kept Cuts::FindKind(const HloInstruction& instruction) {
  const bool is_concatenation =
      instruction.opcode() == HloOpcode::kConcatenate &&
      !instruction.IsRoot() && IsPlain(instruction);
  if (!is_concatenation && !CanBeKept(instruction)) return Kept::kNone;
  const bool is_small =
      xla::ShapeUtil::ElementsIn(instruction.shape()) < kMinKept;
  if (is_concatenation) {
    return is_small ? Kept::kNone : KindOfJoined(instruction);
  }
  if (IsSpread(instruction)) return Kept::kSpread;
  if (is_small) return Kept::kNone;
  if (IsSummed(instruction)) return Kept::kSummed;
  const PlaceReaders& readers = ReadersOf(instruction);
  if (!readers.is_complete || HasSingleReader(instruction)) return Kept::kNone;
  if (IsGathered(instruction)) return Kept::kRepeated;
  if (readers.moving.empty()) return Kept::kNone;
  const int64_t cost = ExpressionCost(instruction);
  const int64_t reads = std::lround(
      cost > kMaxMerged ? ReadsOf(instruction) : ReadsOfNext(instruction));
  // In a concatenation, as of a roll, the expression may well be in vectors.
  const bool is_joined = absl::c_any_of(readers.moving, [](const auto* each) {
    return each->opcode() == HloOpcode::kConcatenate;
  });
  if (reads > (is_joined ? 2 : 1)) {
    return (reads - 1) * cost < kMinRepeated ? Kept::kNone : Kept::kRepeated;
  }
  const bool is_bounded =
      xla::ShapeUtil::ElementIsFloating(instruction.shape()) &&
      cost >= kFunctionCost &&
      absl::c_any_of(readers.moving, [&](const auto* each) {
        return HasBranches(*each, instruction);
      });
  return is_bounded ? Kept::kBounded : Kept::kNone;
}

void ProposeIf(Kept kind, const Rule& rule, const HloInstruction& instruction,
               RuleContext& context, std::vector<Proposal>& proposals) {
  Cuts& cuts = context.Memo<Cuts>();
  if (cuts.KindOf(instruction) != kind || IsSameInLoop(instruction)) return;
  const KernelCone cone =
      ConeOf(instruction, context, [&](const HloInstruction& each) {
        return cuts.KindOf(each) != Kept::kNone;
      });
  if (cone.reads.empty() || (kind == Kept::kSummed && !HasParts(cone)) ||
      MayReturnItsOperand(cone)) {
    return;
  }
  Propose(
      rule, instruction, cone.reads,
      [cone](absl::Span<HloInstruction* const> images) {
        return CallOf(cone, images);
      },
      proposals);
  proposals.back().reads_decided = true;
}

const Rule& RepeatedRule() {
  static constexpr Rule rule = {
      "repeated",
      "Keeps an elementwise array in memory of which a kernel would compute "
      "several elements for each of its own: slices, pads, concatenations and "
      "transposes read it at several places, or six gathers and more. And a "
      "concatenation that four "
      "slices and more read, as an array with a border. Floats round "
      "differently where a product is added to something: LLVM fuses both in "
      "one kernel.",
      [](const HloInstruction& instruction, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeIf(Kept::kRepeated, RepeatedRule(), instruction, context,
                  proposals);
      }};
  return rule;
}

const Rule& BoundedRule() {
  static constexpr Rule rule = {
      "bounded",
      "Keeps an elementwise array in memory that one pad or concatenation "
      "reads, inside of which LLVM may make no vectors of it. Floats round "
      "differently, as with `repeated`.",
      [](const HloInstruction& instruction, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeIf(Kept::kBounded, BoundedRule(), instruction, context,
                  proposals);
      }};
  return rule;
}

const Rule& SummedRule() {
  static constexpr Rule rule = {
      "summed",
      "Keeps an elementwise array in memory that is computed of parts of "
      "arrays, as of columns or shifted rows, and that reductions of many "
      "elements read: XLA has it in their loop, an element at a time. Floats "
      "round differently, as with `repeated`.",
      [](const HloInstruction& instruction, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeIf(Kept::kSummed, SummedRule(), instruction, context, proposals);
      }};
  return rule;
}

const Rule& SpreadRule() {
  static constexpr Rule rule = {
      "spread",
      "Keeps an elementwise array in memory with functions, such as a sine, of "
      "few numbers that are broadcast to at least four times as many: a kernel "
      "would compute them for each of these. Floats round differently, as with "
      "`repeated`.",
      [](const HloInstruction& instruction, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeIf(Kept::kSpread, SpreadRule(), instruction, context, proposals);
      }};
  return rule;
}

const Rule& RecomputedRule() {
  static constexpr Rule rule = {
      "recomputed",
      "Keeps an elementwise array in memory that a kernel would compute very "
      "many times: what reads it is read at several places, and so on, as in a "
      "recurrence whose steps are written out and whose results are stacked. "
      "Floats round differently, as with `repeated`.",
      [](const HloInstruction& instruction, RuleContext& context,
         std::vector<Proposal>& proposals) {
        ProposeIf(Kept::kRecomputed, RecomputedRule(), instruction, context,
                  proposals);
      }};
  return rule;
}

absl::Span<const Rule> FusionCutRules() {
  static const auto* rules =
      new std::vector<Rule>{BoundedRule(), HaloRule(),       IterationsRule(),
                            JoinedRule(),  RecomputedRule(), RepeatedRule(),
                            RoundsRule(),  SpreadRule(),     SummedRule()};
  return *rules;
}

}  // namespace

int64_t ElementCost(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kAtan2:
    case HloOpcode::kCbrt:
    case HloOpcode::kCos:
    case HloOpcode::kErf:
    case HloOpcode::kExp:
    case HloOpcode::kExpm1:
    case HloOpcode::kLog:
    case HloOpcode::kLog1p:
    case HloOpcode::kLogistic:
    case HloOpcode::kPower:
    case HloOpcode::kRemainder:
    case HloOpcode::kSin:
    case HloOpcode::kTan:
    case HloOpcode::kTanh:
      return kFunctionCost;
    case HloOpcode::kDivide:
    case HloOpcode::kRsqrt:
    case HloOpcode::kSqrt:
      return 4;
    case HloOpcode::kBroadcast:
    case HloOpcode::kConstant:
    case HloOpcode::kConvert:
    case HloOpcode::kReshape:
      return 0;
    default:
      return 1;
  }
}

PassInfo FusionCutsPass() {
  return RulePass(
      "fusion-cuts", "hloenv::FusionCuts",
      "Proposes to keep elementwise arrays in memory that XLA's fusion would "
      "compute again for each reader at another place, or for each step of a "
      "recurrence that is written out, or an element at a time "
      "in the loop of a sum, or for each number that it is broadcast to, loops "
      "over large arrays with four iterations in each, short ones over "
      "integers as a kernel, and rolled arrays with their ends on both sides; "
      "and concatenations for sums of padded arrays. "
      "Run it before layout assignment.",
      FusionCutRules(), [](const Options& options) {
        return MakeRulePass("fusion-cuts", FusionCutRules(), options);
      });
}

}  // namespace hloenv
