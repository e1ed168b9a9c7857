// SPDX-License-Identifier: Apache-2.0
// Pass objects, and whole pipelines, that only XLA's own compiler can make.
//
// Some passes hold objects of the compiler (LLVM's description of the machine,
// above all) and their headers need LLVM's. XLA's compiler makes one of each
// whenever it compiles: a compile of a module of one instruction is stopped in
// front of the pass and kept there, and its pass object serves everybody.
#pragma once

#include <memory>
#include <string>

namespace xla {
class HloPassInterface;
}  // namespace xla

namespace hloenv {

// A pass that runs XLA's own pass or pipeline of this name. Its run fails with
// a PassError when XLA's CPU compiler makes none on this machine.
std::unique_ptr<xla::HloPassInterface> MakeCompilerOwnedPass(std::string name);

}  // namespace hloenv
