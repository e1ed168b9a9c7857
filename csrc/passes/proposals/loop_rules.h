// SPDX-License-Identifier: Apache-2.0
// Loops that count, for rules that write several iterations of them out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

// A loop that counts from one constant to another.
struct Counted {
  int64_t index;  // of the element that it counts in
  int64_t start;
  int64_t trips;
};

// One in a module, whose results may be replaced.
struct FoundLoop {
  const xla::HloInstruction* loop;
  Counted counted;
  // Its results that are used, elements of its tuple, in post order.
  std::vector<const xla::HloInstruction*> originals;
};

// The number of the element of the only parameter; -1 for other instructions.
int64_t ElementOf(const xla::HloInstruction& instruction);
// An integer that a constant contains.
std::optional<int64_t> IntegerOf(const xla::HloInstruction& instruction);
// Whether an instruction of a body may stand there several times.
bool IsRepeatable(const xla::HloInstruction& instruction);
// Whether iterations may stand one after the other: all their instructions, and
// arrays that independent ones have at the same time.
bool MayRepeat(const xla::HloInstruction& loop, int64_t factor);
// Adds `factor` iterations in one to the computation of `initial`, the state at
// the start, or all where there are no more; returns the state at the end.
std::vector<xla::HloInstruction*> Unrolled(
    const xla::HloInstruction& loop, const Counted& counted, int64_t factor,
    absl::Span<xla::HloInstruction* const> initial);
// The loop that `last` is the last used result of, if it counts at least two
// iterations and all parts of its state are arrays that stay as they are.
std::optional<FoundLoop> FoundLoopOf(const xla::HloInstruction& last,
                                     RuleContext& context);
// Proposes such a loop with `factor` iterations in one (loop_forms.cc).
void ProposeUnrolled(const Rule& rule, int64_t factor,
                     const xla::HloInstruction& last, RuleContext& context,
                     std::vector<Proposal>& proposals);

}  // namespace hloenv
