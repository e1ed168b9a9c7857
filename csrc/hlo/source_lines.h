// SPDX-License-Identifier: Apache-2.0
// Source locations of instructions, from the metadata that frontends such as
// JAX set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xla {
class HloModule;
}  // namespace xla

namespace hloenv {

struct SourceLine {
  std::string instruction;  // its name
  std::string op_name;      // of the frontend's operation: "jit(f)/sin"
  std::string file;         // empty if it is unknown
  int64_t line = 0;         // 0 if it is unknown
};

// Of all instructions of `module` with metadata. Stack frame ids that the
// module's table does not have give no file.
std::vector<SourceLine> SourceLines(const xla::HloModule& module);

}  // namespace hloenv
