// SPDX-License-Identifier: Apache-2.0
// Finds functions of few numbers that are broadcast to many, as the sines of a
// table of positions: a kernel that reads the broadcast computes them again for
// each of its elements.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/cut_rules.h"
#include "passes/proposals/fusion_rules.h"
#include "passes/proposals/loop_rules.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

namespace {

// The fewest numbers whose function is kept, how many times as many elements
// the broadcast must have, and how many at least.
constexpr int64_t kMinSpread = 8;
constexpr int64_t kMinTimes = 4;
constexpr int64_t kMinBroadcast = int64_t{1} << 14;
// Instructions that one search looks at.
constexpr size_t kMaxSearched = 32;
// Operations of which it takes long to compute them again for each row, and for
// each number of a row, of which LLVM often computes them once; and
// instructions up to which they are counted.
constexpr int64_t kMinOfRows = 48;
constexpr int64_t kMinInRow = 192;
constexpr size_t kMaxWritten = 512;

// Functions that take many times as long as reading a number. Exponentials and
// what is made of them do not.
bool IsSlowFunction(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kAtan2:
    case HloOpcode::kCbrt:
    case HloOpcode::kCos:
    case HloOpcode::kErf:
    case HloOpcode::kSin:
    case HloOpcode::kTan:
      return true;
    case HloOpcode::kPower:
      // XLA makes products and roots of some constant ones.
      return !IsOfConstant(*instruction.operand(1));
    case HloOpcode::kRemainder:
      return xla::ShapeUtil::ElementIsFloating(instruction.shape());
    default:
      return false;
  }
}

// Whether one of the last operations that it is computed by is such a function,
// or they are at least so many, as math-forms writes one with.
bool HasSlowFunction(const HloInstruction& instruction, int64_t least) {
  std::vector<const HloInstruction*> found = {&instruction};
  absl::flat_hash_set<const HloInstruction*> visited = {&instruction};
  int64_t written = 0;
  for (size_t i = 0; i < found.size() && i < kMaxWritten; ++i) {
    if (i < kMaxSearched && IsSlowFunction(*found[i]) &&
        !IsSameInLoop(*found[i])) {
      return true;
    }
    written += ElementCost(*found[i]) > 0 ? 1 : 0;
    if (written >= least) return !IsSameInLoop(instruction);
    for (const HloInstruction* operand : found[i]->operands()) {
      if ((operand->IsElementwise() ||
           operand->opcode() == HloOpcode::kReshape) &&
          visited.insert(operand).second) {
        found.push_back(operand);
      }
    }
  }
  return false;
}

// How many elements of a broadcast are read, of one reader at least.
int64_t ReadElements(const HloInstruction& broadcast) {
  std::vector<const HloInstruction*> found = {&broadcast};
  int64_t most = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]->IsRoot() || i == kMaxSearched) {
      return xla::ShapeUtil::ElementsIn(broadcast.shape());
    }
    for (const HloInstruction* user : found[i]->users()) {
      if (user->IsElementwise() && user->shape().IsArray()) {
        if (!absl::c_linear_search(found, user)) found.push_back(user);
      } else if (user->opcode() == HloOpcode::kSlice) {
        most = std::max(most, xla::ShapeUtil::ElementsIn(user->shape()));
      } else {
        return xla::ShapeUtil::ElementsIn(broadcast.shape());
      }
    }
  }
  return most;
}

}  // namespace

bool IsSameInLoop(const HloInstruction& instruction) {
  const xla::HloComputation& body = *instruction.parent();
  const std::optional<HloInstruction*> loop =
      body.GetUniqueCaller(HloOpcode::kWhile);
  const HloInstruction& next = *body.root_instruction();
  if (!loop.has_value() || (*loop)->while_body() != &body ||
      next.opcode() != HloOpcode::kTuple) {
    return false;
  }
  std::vector<const HloInstruction*> found = {&instruction};
  for (size_t i = 0; i < found.size(); ++i) {
    if (i == kMaxSearched) return false;
    if (const int64_t element = ElementOf(*found[i]); element >= 0) {
      if (ElementOf(*next.operand(element)) != element) return false;
      continue;
    }
    if (found[i]->opcode() == HloOpcode::kParameter) return false;
    for (const HloInstruction* operand : found[i]->operands()) {
      if (!absl::c_linear_search(found, operand)) found.push_back(operand);
    }
  }
  return true;
}

bool IsSpread(const HloInstruction& instruction) {
  const int64_t elements = xla::ShapeUtil::ElementsIn(instruction.shape());
  if (elements < kMinSpread) return false;
  const int64_t least = std::max(kMinTimes * elements, kMinBroadcast);
  std::vector<const HloInstruction*> found = {&instruction};
  for (size_t i = 0; i < found.size() && i < kMaxSearched; ++i) {
    for (const HloInstruction* user : found[i]->users()) {
      if (user->opcode() != HloOpcode::kBroadcast &&
          user->opcode() != HloOpcode::kReshape) {
        continue;
      }
      if (xla::ShapeUtil::ElementsIn(user->shape()) == elements) {
        found.push_back(user);
      } else if (ReadElements(*user) >= least) {
        const auto last =
            static_cast<int64_t>(user->shape().dimensions().size()) - 1;
        const bool is_of_rows = absl::c_linear_search(user->dimensions(), last);
        return HasSlowFunction(instruction,
                               is_of_rows ? kMinOfRows : kMinInRow);
      }
    }
  }
  return false;
}

}  // namespace hloenv
