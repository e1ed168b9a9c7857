// SPDX-License-Identifier: Apache-2.0
// Passes and pipelines that only XLA's compiler can construct.
//
// Some passes hold objects of the compiler (such as LLVM's target machine), and
// their headers include LLVM's. XLA's compiler constructs them on every
// compile, so a compile of a trivial module is paused before the pass for the
// rest of the process, and its pass object is used for all runs.
#pragma once

#include <memory>
#include <string>

namespace xla {
class HloPassInterface;
}  // namespace xla

namespace hloenv {

// A pass that runs XLA's own pass or pipeline of this name. Its run returns
// PassError when XLA's CPU compiler does not construct it on this machine.
std::unique_ptr<xla::HloPassInterface> MakeCompilerOwnedPass(std::string name);

}  // namespace hloenv
