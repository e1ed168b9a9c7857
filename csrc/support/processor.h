// SPDX-License-Identifier: Apache-2.0
// What the processor can do.
#pragma once

namespace hloenv {

// Whether it multiplies bf16 and adds up f32.
inline bool HasProductsOfBf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") > 0;
#else
  return false;
#endif
}

}  // namespace hloenv
