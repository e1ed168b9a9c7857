// SPDX-License-Identifier: Apache-2.0
// Rules of the candidate pass reduce-forms, which are in several files.
#pragma once

#include <optional>

#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

// The operation of a computation of two numbers that consists of one operation
// which may be repeated in any order; nothing for others.
std::optional<xla::HloOpcode> OperationOf(const xla::HloComputation& reducer);
// Whether numbers of this type can be reduced by single operations.
bool IsReducible(const xla::Shape& shape);

const Rule& WindowChainRule();  // window_forms.cc
const Rule& SelectChainRule();  // select_forms.cc

}  // namespace hloenv
