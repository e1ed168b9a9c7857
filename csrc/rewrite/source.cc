// SPDX-License-Identifier: Apache-2.0
#include "rewrite/source.h"

namespace hloenv {

absl::string_view AlternativeKindName(AlternativeKind kind) {
  switch (kind) {
    case AlternativeKind::kInstruction:
      return "instruction";
    case AlternativeKind::kSites:
      return "sites";
    case AlternativeKind::kPass:
      return "pass";
  }
  return "";
}

}  // namespace hloenv
