// SPDX-License-Identifier: Apache-2.0
#include "hlo/left_out.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <type_traits>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "tsl/platform/fingerprint.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

constexpr absl::string_view kLeftOut = "constant({...})";

// The names of the instructions that are printed so: NAME = SHAPE
// constant(...).
absl::flat_hash_set<std::string> NamesOf(absl::string_view text) {
  absl::flat_hash_set<std::string> names;
  size_t at = 0;
  while ((at = text.find(kLeftOut, at)) != absl::string_view::npos) {
    const size_t equals = text.rfind('=', at);
    at += kLeftOut.size();
    if (equals == absl::string_view::npos) continue;
    absl::string_view name =
        absl::StripTrailingAsciiWhitespace(text.substr(0, equals));
    name.remove_prefix(name.find_last_of(" \t\r\n{%") + 1);  // npos + 1 is 0
    names.emplace(name);
  }
  return names;
}

// Whether a literal has what the counter of XLA's parser writes: another
// computation may have a constant of the same name with numbers.
bool IsCounted(const xla::Literal& literal) {
  const auto* bytes = static_cast<const char*>(literal.untyped_data());
  const int64_t size = literal.size_bytes();
  // Of truth values it writes the lowest bit of each byte.
  const uint32_t mask = literal.shape().element_type() == xla::PRED
                            ? 1
                            : std::numeric_limits<uint32_t>::max();
  // From here on it writes as many bytes again as there are after the last
  // word.
  const int64_t again = size / 4;
  std::optional<uint32_t> first;
  for (int64_t i = 0; i < size / 4; ++i) {
    if (4 * i < again + size % 4 && again < 4 * i + 4) continue;
    uint32_t word;
    std::memcpy(&word, bytes + 4 * i, sizeof(word));
    word -= static_cast<uint32_t>(i);
    if (((word - first.value_or(word)) & mask) != 0) return false;
    first = word;
  }
  return true;
}

template <typename Native>
Native NumberFrom(uint64_t bits) {
  if constexpr (std::is_same_v<Native, bool>) {
    return (bits & 1) != 0;
  } else if constexpr (std::numeric_limits<Native>::is_integer) {
    const bool is_wide = std::numeric_limits<Native>::digits >= 3;
    return static_cast<Native>(static_cast<int>(bits & (is_wide ? 7 : 1)));
  } else {
    return static_cast<Native>(0.25F +
                               static_cast<float>(bits & 0xffff) / 65536.0F);
  }
}

void Fill(absl::string_view name, xla::Literal* literal) {
  std::mt19937_64 random(tsl::Fingerprint64(name));
  xla::primitive_util::ArrayTypeSwitch(
      [&](auto type) {
        using Native = xla::primitive_util::NativeTypeOf<type>;
        for (Native& each : literal->data<Native>()) {
          each = NumberFrom<Native>(random());
        }
      },
      literal->shape().element_type());
}

}  // namespace

void FillLeftOutConstants(absl::string_view text, xla::HloModule* hlo) {
  const absl::flat_hash_set<std::string> names = NamesOf(text);
  if (names.empty()) return;
  for (xla::HloComputation* computation : hlo->computations()) {
    for (xla::HloInstruction* each : computation->instructions()) {
      auto* constant = xla::DynCast<xla::HloConstantInstruction>(each);
      if (constant != nullptr && names.contains(constant->name()) &&
          constant->shape().IsArray() && IsCounted(constant->literal())) {
        Fill(constant->name(), constant->mutable_literal());
      }
    }
  }
}

}  // namespace hloenv
