// SPDX-License-Identifier: Apache-2.0
#include "graph/labels.h"

#include "absl/strings/ascii.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace hloenv {

using xla::HloInstruction;
using xla::HloOpcode;

const std::vector<std::string>& OpcodeNames() {
  static const auto* const names = [] {
    auto* result = new std::vector<std::string>();
    for (uint32_t i = 0; i < xla::HloOpcodeCount(); ++i) {
      result->emplace_back(xla::HloOpcodeString(static_cast<HloOpcode>(i)));
    }
    return result;
  }();
  return *names;
}

const std::vector<std::string>& DtypeNames() {
  static const auto* const names = [] {
    auto* result = new std::vector<std::string>();
    for (int i = 0; i < xla::PrimitiveType_ARRAYSIZE; ++i) {
      // The enum has holes where types were withdrawn.
      result->push_back(xla::PrimitiveType_IsValid(i)
                            ? absl::AsciiStrToLower(xla::PrimitiveType_Name(
                                  static_cast<xla::PrimitiveType>(i)))
                            : absl::StrCat("unused_", i));
    }
    (*result)[xla::PRIMITIVE_TYPE_INVALID] = "none";
    (*result)[xla::OPAQUE_TYPE] = "opaque";
    return result;
  }();
  return *names;
}

const std::vector<std::string>& ComparisonDirectionNames() {
  static const auto* const names = [] {
    auto* result = new std::vector<std::string>();
    for (int i = 0; i <= static_cast<int>(xla::ComparisonDirection::kLt); ++i) {
      result->push_back(xla::ComparisonDirectionToString(
          static_cast<xla::ComparisonDirection>(i)));
    }
    return result;
  }();
  return *names;
}

const std::vector<std::string>& FusionKindNames() {
  static const auto* const names = [] {
    auto* result = new std::vector<std::string>();
    for (int i = 0; i <= static_cast<int>(HloInstruction::FusionKind::kCustom);
         ++i) {
      result->emplace_back(
          xla::ToString(static_cast<HloInstruction::FusionKind>(i)));
    }
    return result;
  }();
  return *names;
}

std::vector<std::string> NodeNames(const Topology& topology) {
  std::vector<std::string> names;
  names.reserve(topology.nodes.size());
  for (const HloInstruction* instruction : topology.nodes) {
    names.emplace_back(instruction->name());
  }
  return names;
}

std::vector<std::string> NodeShapes(const Topology& topology) {
  std::vector<std::string> shapes;
  shapes.reserve(topology.nodes.size());
  for (const HloInstruction* instruction : topology.nodes) {
    shapes.push_back(instruction->shape().ToString(/*print_layout=*/true));
  }
  return shapes;
}

std::vector<std::string> ComputationNames(const Topology& topology) {
  std::vector<std::string> names;
  names.reserve(topology.computations.size());
  for (const xla::HloComputation* computation : topology.computations) {
    names.emplace_back(computation->name());
  }
  return names;
}

}  // namespace hloenv
