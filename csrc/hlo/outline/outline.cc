// SPDX-License-Identifier: Apache-2.0
#include "hlo/outline/outline.h"

#include "absl/algorithm/container.h"
#include "xla/primitive_util.h"

namespace hloenv {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 40;

const char* CheckLayout(const OutlineShape& shape) {
  const Ints& layout = *shape.layout;
  if (layout.size() != shape.dims.size()) {
    return "a layout does not name each dimension once";
  }
  std::vector<bool> is_named(layout.size(), false);
  for (const int64_t dim : layout) {
    if (dim < 0 || dim >= static_cast<int64_t>(layout.size()) ||
        is_named[dim]) {
      return "a layout does not name each dimension once";
    }
    is_named[dim] = true;
  }
  return nullptr;
}

const char* CheckNestedShape(const OutlineShape& shape, int nesting) {
  if (nesting > kMaxShapeNesting) return "a shape is nested too deep";
  if (shape.IsTuple()) {
    for (const OutlineShape& element : shape.elements) {
      const char* why = CheckNestedShape(element, nesting + 1);
      if (why != nullptr) return why;
    }
    return nullptr;
  }
  if (!shape.IsArray()) return nullptr;
  int64_t elements = 1;
  for (const int64_t dim : shape.dims) {
    if (dim < 0 || dim > kMaxDimension) return "a dimension is out of range";
    if (dim > 0 && elements > kMaxBytes / 16 / dim) {
      return "an array is too large";
    }
    elements *= std::max<int64_t>(dim, 1);
  }
  return shape.layout.has_value() ? CheckLayout(shape) : nullptr;
}

// Whether `index` is the index of a subshape of `shape`.
bool HasPart(const OutlineShape& shape, const Ints& index) {
  const OutlineShape* part = &shape;
  for (const int64_t i : index) {
    if (i < 0 || i >= static_cast<int64_t>(part->elements.size())) {
      return false;
    }
    part = &part->elements[i];
  }
  return true;
}

const char* CheckAliases(const Outline& outline) {
  const OutlineComputation& entry = outline.computations[outline.entry];
  const auto has_parameter = [&](const OutlineAlias& alias) {
    return alias.operand >= 0 &&
           alias.operand < static_cast<int64_t>(entry.parameters.size()) &&
           HasPart(entry.instructions[entry.parameters[alias.operand]].shape,
                   alias.operand_index);
  };
  absl::InlinedVector<std::pair<int64_t, Ints>, 4> used;
  for (const OutlineAlias& alias : outline.aliases) {
    if (!has_parameter(alias) ||
        !HasPart(entry.root_shape(), alias.output_index)) {
      return "an alias names what is not there";
    }
    std::pair<int64_t, Ints> source{alias.operand, alias.operand_index};
    if (absl::c_linear_search(used, source)) return "an alias occurs twice";
    used.push_back(std::move(source));
  }
  for (const OutlineAlias& donor : outline.donors) {
    if (!has_parameter(donor)) return "a donor is not there";
  }
  return nullptr;
}

const char* CheckEntry(const Outline& outline) {
  const OutlineComputation& entry = outline.computations[outline.entry];
  if (outline.entry_parameters.has_value()) {
    const auto& shapes = *outline.entry_parameters;
    if (shapes.size() != entry.parameters.size()) {
      return "the entry layout has another number of parameters";
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      const char* why = CheckShape(shapes[i]);
      if (why != nullptr) return why;
      if (!SameShape(shapes[i],
                     entry.instructions[entry.parameters[i]].shape)) {
        return "the entry layout has other parameters";
      }
    }
  }
  if (outline.entry_result.has_value()) {
    const char* why = CheckShape(*outline.entry_result);
    if (why != nullptr) return why;
    if (!SameShape(*outline.entry_result, entry.root_shape())) {
      return "the entry layout has another result";
    }
  }
  return CheckAliases(outline);
}

// Parameters are numbered from 0 on, each once.
const char* NumberParameters(OutlineComputation* computation) {
  int64_t count = 0;
  for (const OutlineInstruction& each : computation->instructions) {
    if (each.opcode == xla::HloOpcode::kParameter) ++count;
  }
  computation->parameters.assign(count, -1);
  for (size_t i = 0; i < computation->instructions.size(); ++i) {
    const OutlineInstruction& each = computation->instructions[i];
    if (each.opcode != xla::HloOpcode::kParameter) continue;
    const Ints* number = each.Find(Field::kIndex);
    if (number == nullptr || number->size() != 1 || (*number)[0] < 0 ||
        (*number)[0] >= count || computation->parameters[(*number)[0]] != -1) {
      return "parameters are not numbered from 0 on, each once";
    }
    computation->parameters[(*number)[0]] = static_cast<int32_t>(i);
  }
  return nullptr;
}

// Checks how computations are called. A fused computation has one caller.
Doubt CheckCalls(const Outline& outline) {
  const size_t count = outline.computations.size();
  std::vector<int> depth(count, 1);
  std::vector<int64_t> expanded(count, 1);  // with all that they call
  std::vector<int> callers(count, 0);
  std::vector<bool> is_fused(count, false);
  for (size_t i = 0; i < count; ++i) {
    for (const OutlineInstruction& each :
         outline.computations[i].instructions) {
      for (const int32_t called : each.called) {
        depth[i] = std::max(depth[i], depth[called] + 1);
        expanded[i] =
            std::min(expanded[i] + expanded[called], kMaxExpandedCalls + 1);
        ++callers[called];
        if (each.opcode == xla::HloOpcode::kFusion) is_fused[called] = true;
      }
    }
    if (depth[i] > kMaxCallNesting) {
      return {"computations call each other too deep", Verdict::kNoModule};
    }
    if (expanded[i] > kMaxExpandedCalls) {
      return {
          "computations call each other too often: with every call inlined, "
          "there are more than 1,000,000 calls, which is the limit",
          Verdict::kInvalid};
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (is_fused[i] && callers[i] > 1) {
      return {"a fused computation has several callers"};
    }
  }
  if (callers[outline.entry] > 0) return {"the entry computation is called"};
  return {};
}

bool HasOpaque(const OutlineShape& shape) {
  return shape.type == xla::OPAQUE_TYPE ||
         absl::c_any_of(shape.elements, HasOpaque);
}

// XLA cannot assign layouts or sizes to opaque values, or compare them. `self`
// may pass them on, and custom calls may take and return them.
const char* CheckOpaque(const OutlineComputation& computation,
                        OutlineInstruction* self) {
  self->has_opaque = HasOpaque(self->shape);
  switch (self->opcode) {
    case xla::HloOpcode::kCustomCall:
    case xla::HloOpcode::kGetTupleElement:
    case xla::HloOpcode::kParameter:
    case xla::HloOpcode::kTuple:
      return nullptr;
    default:
      break;
  }
  const bool takes_opaque = absl::c_any_of(self->operands, [&](int32_t i) {
    return computation.instructions[i].has_opaque;
  });
  return self->has_opaque || takes_opaque ? "it works on an opaque value"
                                          : nullptr;
}

Doubt MakeDoubt(const OutlineComputation& computation,
                const OutlineInstruction* instruction, const char* why) {
  Doubt doubt;
  if (instruction != nullptr) {
    doubt.reason =
        absl::StrCat("instruction '", instruction->name, "' (",
                     xla::HloOpcodeString(instruction->opcode), ") of ");
  }
  absl::StrAppend(&doubt.reason, "computation '", computation.name, "': ", why);
  return doubt;
}

}  // namespace

std::optional<xla::HloOpcode> FindOpcode(absl::string_view name) {
  static const auto* const kOpcodes = [] {
    auto* opcodes = new absl::flat_hash_map<absl::string_view, xla::HloOpcode>;
    for (uint32_t i = 0; i < xla::HloOpcodeCount(); ++i) {
      const auto opcode = static_cast<xla::HloOpcode>(i);
      opcodes->emplace(xla::HloOpcodeString(opcode), opcode);
    }
    return opcodes;
  }();
  const auto found = kOpcodes->find(name);
  if (found == kOpcodes->end()) return std::nullopt;
  return found->second;
}

bool OutlineShape::IsArray() const {
  return xla::primitive_util::IsArrayType(type);
}

bool SameShape(const OutlineShape& a, const OutlineShape& b) {
  return a.type == b.type && a.dims == b.dims &&
         absl::c_equal(a.elements, b.elements, SameShape);
}

int64_t NumElements(const OutlineShape& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape.dims) elements *= dim;
  return elements;
}

int64_t NumBytes(const OutlineShape& shape) {
  return NumElements(shape) * xla::primitive_util::ByteWidth(shape.type);
}

const Ints* OutlineInstruction::Find(Field field) const {
  for (const auto& [each, values] : fields) {
    if (each == field) return &values;
  }
  return nullptr;
}

const char* CheckShape(const OutlineShape& shape) {
  return CheckNestedShape(shape, 0);
}

Doubt CheckOutline(Outline* outline) {
  if (outline->computations.empty() || outline->entry < 0) {
    return {"there is no entry computation"};
  }
  for (OutlineComputation& computation : outline->computations) {
    const char* why = NumberParameters(&computation);
    if (why != nullptr) return MakeDoubt(computation, nullptr, why);
  }
  for (OutlineComputation& computation : outline->computations) {
    for (OutlineInstruction& each : computation.instructions) {
      const char* why = CheckShape(each.shape);
      if (why == nullptr) why = CheckOpaque(computation, &each);
      if (why == nullptr) why = CheckInstruction(*outline, computation, each);
      if (why != nullptr) return MakeDoubt(computation, &each, why);
    }
  }
  if (Doubt doubt = CheckCalls(*outline)) return doubt;
  const char* why = CheckEntry(*outline);
  return why == nullptr ? Doubt() : Doubt{why};
}

}  // namespace hloenv
