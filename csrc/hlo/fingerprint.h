// SPDX-License-Identifier: Apache-2.0
// A hash of a module's graph, independent of names and instruction order.
#pragma once

#include <string>

namespace xla {
class HloInstruction;
class HloModule;
}  // namespace xla

namespace hloenv {

// 32 hex digits. Equal for two modules if and only if their live graphs are the
// same (but for hash collisions): opcodes, shapes with layouts, every
// attribute, constants, parameter numbers, which uses share one instruction and
// which calls share one computation, control dependencies, side-effecting
// instructions without users, entry layout, input/output aliasing, and the
// schedule if there is one. Blind to names, ids, metadata, dead code and the
// order of instructions. Stable over processes and machines.
std::string Fingerprint(const xla::HloModule& module);

// 32 hex digits: a hash of `instruction`, of the computations that it calls,
// and of the shapes and layouts of its operands. Of the operands, it includes
// only which of them are the same instruction and the values of scalar
// constants. Stable as above.
std::string FingerprintKernel(const xla::HloInstruction& instruction);

}  // namespace hloenv
