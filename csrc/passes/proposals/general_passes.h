// SPDX-License-Identifier: Apache-2.0
// Catalog entries of hloenv's own candidate passes.
#pragma once

#include "passes/registry.h"

namespace hloenv {

PassInfo ConvolutionFormsPass();  // convolution_forms.cc
PassInfo DotFormsPass();          // dot_forms.cc
PassInfo DotLoweringPass();       // dot_lowering.cc
PassInfo ThunkOrderPass();        // thunk_order.cc
PassInfo FusionCutsPass();        // fusion_cuts.cc
PassInfo GeneralFusionPass();     // general_fusion.cc
PassInfo GeneralLayoutPass();     // general_layout.cc
PassInfo GeneralSimplifyPass();   // general_simplify.cc
PassInfo LoopFormsPass();         // loop_forms.cc
PassInfo MathFormsPass();         // math_forms.cc
PassInfo MergeDotsPass();         // merge_dots.cc
PassInfo OneDnnCallsPass();       // onednn_calls.cc
PassInfo ReassociatePass();       // reassociate.cc
PassInfo ReduceFormsPass();       // reduce_forms.cc
PassInfo SingleKernelPass();      // single_kernel.cc
PassInfo SortFormsPass();         // sort_forms.cc

}  // namespace hloenv
