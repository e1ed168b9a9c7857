// SPDX-License-Identifier: Apache-2.0
// A hash of what a module computes and how, blind to names and order.
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

// 32 hex digits: what `instruction` computes from its operands and how, with
// the computations that it calls, and the shapes and layouts of the operands.
// Of the operands themselves it knows which are one instruction, and the values
// of constant scalars. Stable as above.
std::string FingerprintKernel(const xla::HloInstruction& instruction);

}  // namespace hloenv
