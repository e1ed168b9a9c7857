// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace xla {
class HloInstruction;
}  // namespace xla

namespace hloenv {

// Iterations of a while loop, from XLA's own annotation or, without one, of a
// loop that counts a tuple element up or down by a constant between constants;
// -1 when neither tells.
int64_t WhileTripCount(const xla::HloInstruction& instruction);

}  // namespace hloenv
