// SPDX-License-Identifier: Apache-2.0
// Reads and checks the structure of a module's text or proto before XLA reads
// it.
//
// XLA's parser and proto reader assume valid input (that a tuple element
// exists, that a reshape keeps the number of elements, that a layout is a
// permutation) and otherwise end the process. So hloenv first reads the
// structure into these plain values and checks it (CheckOutline). Input that
// passes is safe to read in this process. Input that does not pass may still be
// valid, because the check does not cover all of HLO, and is then read in
// another process first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/xla_data.pb.h"

namespace xla {
class HloModuleProto;
}  // namespace xla

namespace hloenv {

using Ints = absl::InlinedVector<int64_t, 4>;

struct OutlineShape {
  xla::PrimitiveType type = xla::PRIMITIVE_TYPE_INVALID;
  Ints dims;
  std::optional<Ints> layout;  // minor to major
  std::vector<OutlineShape> elements;

  bool IsArray() const;
  bool IsScalar() const { return IsArray() && dims.empty(); }
  bool IsTuple() const { return type == xla::TUPLE; }
  bool IsToken() const { return type == xla::TOKEN; }
};

// Compares types and dimensions, not layouts.
bool SameShape(const OutlineShape& a, const OutlineShape& b);
int64_t NumElements(const OutlineShape& shape);
int64_t NumBytes(const OutlineShape& shape);

std::optional<xla::HloOpcode> FindOpcode(absl::string_view name);

// Attributes that are lists of numbers. Scatters use the fields of gathers:
// update window dimensions are kOffsetDims, and so on.
enum class Field : uint8_t {
  kDimensions,
  kIndex,  // of a parameter, a tuple element or a feature dimension
  kLhsContracting,
  kRhsContracting,
  kLhsBatch,
  kRhsBatch,
  kStarts,
  kLimits,
  kStrides,
  kSizes,
  kPadLow,
  kPadHigh,
  kPadInterior,
  kWindowSize,
  kWindowStride,
  kWindowPadLow,
  kWindowPadHigh,
  kWindowLhsDilation,
  kWindowRhsDilation,
  kConvInput,  // batch, feature, then the spatial ones
  kConvKernel,
  kConvOutput,
  kFeatureGroups,
  kBatchGroups,
  kOffsetDims,
  kCollapsedDims,
  kIndexMap,
  kOperandBatch,
  kIndicesBatch,
  kIndexVectorDim,
  kBits,  // of the exponent and of the mantissa
  kCompareType,
};

// An output of a custom call that is one of its operands.
struct OutlineAlias {
  Ints output_index;
  int64_t operand = 0;
  Ints operand_index;
};

struct OutlineInstruction {
  xla::HloOpcode opcode{};
  absl::string_view name;
  OutlineShape shape;
  absl::InlinedVector<int32_t, 3> operands;  // positions before this one
  absl::InlinedVector<int32_t, 2> called;    // computations before this one's
  absl::InlinedVector<std::pair<Field, Ints>, 2> fields;
  std::vector<OutlineShape> constrained_operands;
  std::vector<OutlineAlias> aliases;
  bool has_opaque = false;  // anywhere in its shape; filled by the check

  // Null if the attribute is missing.
  const Ints* Find(Field field) const;
  void Set(Field field, Ints values) {
    fields.emplace_back(field, std::move(values));
  }
};

struct OutlineComputation {
  absl::string_view name;
  std::vector<OutlineInstruction> instructions;
  int32_t root = -1;
  std::vector<int32_t> parameters;  // positions by number; filled by the check

  const OutlineShape& root_shape() const { return instructions[root].shape; }
};

struct Outline {
  std::vector<OutlineComputation> computations;
  int32_t entry = -1;
  // From the module's entry layout, where it has one.
  std::optional<std::vector<OutlineShape>> entry_parameters;
  std::optional<OutlineShape> entry_result;
  // Output index, parameter, its index.
  std::vector<OutlineAlias> aliases;
  std::vector<OutlineAlias> donors;  // without output
};

// How to handle input that does not pass the check.
enum class Verdict : uint8_t {
  kUnsure,    // may be valid: another process must read it first
  kNoModule,  // cannot be read: ParseError
  kInvalid,   // exceeds a limit of hloenv, or could not be saved again:
              // InvalidModuleError
};

// Why input cannot be read in this process; the reason is empty if it can.
struct Doubt {
  std::string reason;
  Verdict verdict = Verdict::kUnsure;

  explicit operator bool() const { return !reason.empty(); }
};

// Maximum nesting of shapes and of calls: XLA processes both recursively.
inline constexpr int kMaxShapeNesting = 64;
inline constexpr int kMaxCallNesting = 200;
// XLA's cost analysis and its call flattening visit a computation once per call
// path, whose number can grow exponentially with the nesting.
inline constexpr int64_t kMaxExpandedCalls = 1'000'000;
// Maximum size of an array, so that no product of sizes overflows.
inline constexpr int64_t kMaxBytes = int64_t{1} << 46;

// Checks dimensions, sizes and layouts of one shape. Returns the reason for a
// rejection, or null.
const char* CheckShape(const OutlineShape& shape);
// Checks one instruction, whose operands and called computations must have
// passed. Returns the reason for a rejection, or null.
const char* CheckInstruction(const Outline& outline,
                             const OutlineComputation& computation,
                             const OutlineInstruction& instruction);
// Checks the whole module. Fills `parameters`.
Doubt CheckOutline(Outline* outline);

// Reads and checks HLO text.
Doubt DoubtText(absl::string_view text);
// Reads and checks a proto.
Doubt DoubtProto(const xla::HloModuleProto& proto);

}  // namespace hloenv
