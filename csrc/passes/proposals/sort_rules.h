// SPDX-License-Identifier: Apache-2.0
// Rules of the candidate pass sort-forms, which are in several files.
#pragma once

#include "passes/proposals/rules.h"

namespace hloenv {

const Rule& MaximaRule();    // top_k.cc
const Rule& ArgmaxesRule();  // top_k.cc
const Rule& WiderRule();     // top_k.cc

}  // namespace hloenv
