// SPDX-License-Identifier: Apache-2.0
// The attributes of instructions as integers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xla {
class HloInstruction;
}  // namespace xla

namespace hloenv {

// Attributes as pairs of a key and a value: most instructions have none, and
// few have more than four.
struct AttributeList {
  std::vector<int32_t> keys;  // index into AttributeNames()
  std::vector<int64_t> values;

  void Add(int32_t key, int64_t value) {
    keys.push_back(key);
    values.push_back(value);
  }
};

// What each key is called. A name means the same for every opcode.
const std::vector<std::string>& AttributeNames();

// Appends the attributes of `instruction`, by ascending key.
void AppendAttributes(const xla::HloInstruction& instruction,
                      AttributeList* list);

}  // namespace hloenv
