// SPDX-License-Identifier: Apache-2.0
// The rules of convolution-forms.
#pragma once

#include "passes/proposals/rules.h"

namespace hloenv {

const Rule& TapsRule();          // convolution_forms.cc
const Rule& TapsApartRule();     // convolution_forms.cc
const Rule& TermsRule();         // convolution_forms.cc
const Rule& OutputsRule();       // convolution_forms.cc
const Rule& PatchesRule();       // convolution_forms.cc
const Rule& BandsRule();         // convolution_bands.cc
const Rule& BlocksRule();        // convolution_blocks.cc
const Rule& ChannelsLastRule();  // convolution_order.cc
const Rule& CopiesRule();        // convolution_copies.cc
const Rule& PhasesRule();        // convolution_phases.cc
const Rule& RowsRule();          // convolution_rows.cc
const Rule& ToeplitzRule();      // convolution_signals.cc

}  // namespace hloenv
