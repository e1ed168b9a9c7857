// SPDX-License-Identifier: Apache-2.0
// Rules of the candidate pass reduce-forms, which are in several files, and
// what they share.
#pragma once

#include <optional>
#include <vector>

#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

// The operation of a computation of two numbers that consists of one operation
// which may be repeated in any order; nothing for others.
std::optional<xla::HloOpcode> OperationOf(const xla::HloComputation& reducer);
// Whether it takes one of two numbers.
bool IsExtreme(xla::HloOpcode operation);
// Whether numbers of this type can be reduced by single operations.
bool IsReducible(const xla::Shape& shape);
// The operation of a reduction of one array, over dimensions or windows, that
// can be written as a chain; nothing for others.
std::optional<xla::HloOpcode> ReductionOf(const xla::HloInstruction& root,
                                          RuleContext& context);
// Whether the operation with this number changes nothing.
bool IsNeutral(const xla::HloInstruction& number, xla::HloOpcode operation);
// Whether a reduction has what it reads in a slow loop, if that is more than
// reading an array.
bool HasSlowLoop(const xla::HloInstruction& reader);
// `build` for a chain of so many terms in place of `root`, in a kernel of its
// own where a reduction would have a sum in a slow loop.
BuildFn OutOfSlowLoops(const xla::HloInstruction& root,
                       xla::HloOpcode operation, size_t terms, BuildFn build);
// operation(...operation(operation(initial, terms[0]), terms[1])...), in the
// type of `root`. The terms have its dimensions, and with `initial`, a number,
// the type of accumulation.
xla::HloInstruction* ChainOf(const xla::HloInstruction& root,
                             xla::HloOpcode operation,
                             xla::HloInstruction* initial,
                             absl::Span<xla::HloInstruction* const> terms);

const Rule& PackedIndexRule();      // arg_forms.cc
const Rule& KeyedIndexRule();       // arg_forms.cc
const Rule& BlockedRule();          // blocked_reduce.cc
const Rule& ColumnsRule();          // column_forms.cc
const Rule& SideBySideRule();       // side_by_side.cc
const Rule& SqueezedRule();         // squeezed_reduce.cc
const Rule& FoldedRule();           // folded_reduce.cc
const Rule& FoldedSumRule();        // folded_reduce.cc
const Rule& WindowChainRule();      // window_forms.cc
const Rule& DimensionsRule();       // window_forms.cc
const Rule& SelectChainRule();      // select_forms.cc
const Rule& PrefixesRule();         // prefix_scan.cc
const Rule& PrefixGradientsRule();  // prefix_gradients.cc
const Rule& ScanRule();             // scan_forms.cc
const Rule& ScanGroupsRule();       // scan_forms.cc
const Rule& ScatterIntoRule();      // scatter_into.cc
const Rule& ScatterRowsRule();      // scatter_forms.cc

}  // namespace hloenv
