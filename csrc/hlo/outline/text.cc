// SPDX-License-Identifier: Apache-2.0
// Reads the structure of HLO text. Syntax that it does not cover is a doubt, so
// it must agree with XLA's parser only on the text that it accepts.
#include "absl/algorithm/container.h"
#include "hlo/outline/values.h"

namespace hloenv {
namespace {

using Opcode = xla::HloOpcode;

// The literal of a constant may be larger than its text.
constexpr int64_t kMaxElidedBytes = int64_t{64} << 20;

// The syntax of an attribute's value.
enum class Kind {
  kIgnoredWord,    // word, number, true
  kIgnoredBraces,  // {...}, checked for balance only
  kIgnoredString,  // "..."
  kStringOrBraces,
  kInts,  // {0,1}
  kInt,   // 0
  kWord,
  kComputation,
  kComputations,
  kSlices,
  kPadding,
  kWindow,
  kDimLabels,
  kNames,
  kShapes,
  kAliases,
  kMetadata,
  kSharding,
};

struct Attribute {
  Kind kind;
  Field field = Field::kDimensions;
};

const absl::flat_hash_map<absl::string_view, Attribute>& Attributes() {
  static const auto* const kAttributes =
      new absl::flat_hash_map<absl::string_view, Attribute>{
          {"dimensions", {Kind::kInts, Field::kDimensions}},
          {"iota_dimension", {Kind::kInt, Field::kDimensions}},
          {"index", {Kind::kInt, Field::kIndex}},
          {"feature_index", {Kind::kInt, Field::kIndex}},
          {"lhs_contracting_dims", {Kind::kInts, Field::kLhsContracting}},
          {"rhs_contracting_dims", {Kind::kInts, Field::kRhsContracting}},
          {"lhs_batch_dims", {Kind::kInts, Field::kLhsBatch}},
          {"rhs_batch_dims", {Kind::kInts, Field::kRhsBatch}},
          {"slice", {Kind::kSlices}},
          {"dynamic_slice_sizes", {Kind::kInts, Field::kSizes}},
          {"slice_sizes", {Kind::kInts, Field::kSizes}},
          {"fft_length", {Kind::kInts, Field::kSizes}},
          {"k", {Kind::kInt, Field::kSizes}},
          {"padding", {Kind::kPadding}},
          {"window", {Kind::kWindow}},
          {"dim_labels", {Kind::kDimLabels}},
          {"feature_group_count", {Kind::kInt, Field::kFeatureGroups}},
          {"batch_group_count", {Kind::kInt, Field::kBatchGroups}},
          {"offset_dims", {Kind::kInts, Field::kOffsetDims}},
          {"collapsed_slice_dims", {Kind::kInts, Field::kCollapsedDims}},
          {"start_index_map", {Kind::kInts, Field::kIndexMap}},
          {"operand_batching_dims", {Kind::kInts, Field::kOperandBatch}},
          {"start_indices_batching_dims", {Kind::kInts, Field::kIndicesBatch}},
          {"index_vector_dim", {Kind::kInt, Field::kIndexVectorDim}},
          {"update_window_dims", {Kind::kInts, Field::kOffsetDims}},
          {"inserted_window_dims", {Kind::kInts, Field::kCollapsedDims}},
          {"scatter_dims_to_operand_dims", {Kind::kInts, Field::kIndexMap}},
          {"input_batching_dims", {Kind::kInts, Field::kOperandBatch}},
          {"scatter_indices_batching_dims",
           {Kind::kInts, Field::kIndicesBatch}},
          {"exponent_bits", {Kind::kInt, Field::kBits}},
          {"mantissa_bits", {Kind::kInt, Field::kBits}},
          {"type", {Kind::kWord, Field::kCompareType}},
          {"to_apply", {Kind::kComputation}},
          {"calls", {Kind::kComputation}},
          {"condition", {Kind::kComputation}},
          {"body", {Kind::kComputation}},
          {"select", {Kind::kComputation}},
          {"scatter", {Kind::kComputation}},
          {"true_computation", {Kind::kComputation}},
          {"false_computation", {Kind::kComputation}},
          {"branch_computations", {Kind::kComputations}},
          {"control-predecessors", {Kind::kNames}},
          {"operand_layout_constraints", {Kind::kShapes}},
          {"output_to_operand_aliasing", {Kind::kAliases}},
          {"metadata", {Kind::kMetadata}},
          {"sharding", {Kind::kSharding}},
          {"frontend_attributes", {Kind::kIgnoredBraces}},
          {"backend_config", {Kind::kStringOrBraces}},
          {"operand_precision", {Kind::kIgnoredBraces}},
          {"custom_call_target", {Kind::kIgnoredString}},
          {"direction", {Kind::kIgnoredWord}},
          {"indices_are_sorted", {Kind::kIgnoredWord}},
          {"unique_indices", {Kind::kIgnoredWord}},
          {"algorithm", {Kind::kIgnoredWord}},
          {"api_version", {Kind::kIgnoredWord}},
          {"custom_call_has_side_effect", {Kind::kIgnoredWord}},
          {"schedule", {Kind::kIgnoredWord}},
          {"is_stable", {Kind::kIgnoredWord}},
          {"fft_type", {Kind::kIgnoredWord}},
          {"kind", {Kind::kIgnoredWord}},
          {"largest", {Kind::kIgnoredWord}},
          {"distribution", {Kind::kIgnoredWord}},
          {"epsilon", {Kind::kIgnoredWord}},
          {"lower", {Kind::kIgnoredWord}},
          {"left_side", {Kind::kIgnoredWord}},
          {"unit_diagonal", {Kind::kIgnoredWord}},
          {"transpose_a", {Kind::kIgnoredWord}},
  };
  return *kAttributes;
}

// Element types of which XLA reads constants without a crash.
bool IsPlainType(xla::PrimitiveType type) {
  switch (type) {
    case xla::PRED:
    case xla::S8:
    case xla::S16:
    case xla::S32:
    case xla::S64:
    case xla::U8:
    case xla::U16:
    case xla::U32:
    case xla::U64:
    case xla::F16:
    case xla::BF16:
    case xla::F32:
    case xla::F64:
    case xla::C64:
    case xla::C128:
      return true;
    default:
      return false;
  }
}

// The bytes of all arrays in a shape that has passed the check.
int64_t LeafBytes(const OutlineShape& shape) {
  if (shape.IsArray()) return NumBytes(shape);
  int64_t bytes = 0;
  for (const OutlineShape& each : shape.elements) {
    bytes = std::min(bytes + LeafBytes(each), kMaxBytes);
  }
  return bytes;
}

class Scanner : public ValueCursor {
 public:
  using ValueCursor::ValueCursor;

  Doubt Scan(Outline* outline) {
    outline_ = outline;
    if (Module()) return {};
    const int64_t line =
        1 + std::count(text_.begin(), text_.begin() + at_, '\n');
    return {absl::StrCat("line ", line, ": ", why_.empty() ? "unknown" : why_),
            verdict_};
  }

 private:
  // --- the module ---

  bool Module() {
    absl::string_view name;
    if (!Need("HloModule") || !Name(&name)) return false;
    while (Eat(",")) {
      if (!HeaderAttribute()) return false;
    }
    if (!StackFrames()) return false;
    while (Skip() && at_ < text_.size()) {
      if (!Computation()) return false;
    }
    if (!why_.empty()) return false;
    if (outline_->entry < 0) {
      outline_->entry = static_cast<int32_t>(outline_->computations.size()) - 1;
    }
    return true;
  }

  bool HeaderAttribute() {
    const absl::string_view key = Word();
    if (!Need("=")) return false;
    if (key == "is_scheduled" || key == "alias_passthrough_params") {
      Word();
      return true;
    }
    if (key == "replica_count" || key == "num_partitions") {
      int64_t count;
      return Int(&count) && ((count >= 1 && count <= 65536) ||
                             Fail("an unlikely number of devices"));
    }
    if (key == "frontend_attributes" ||
        key ==
            "allow_spmd_sharding_"
            "propagation_to_parameters" ||
        key == "allow_spmd_sharding_propagation_to_output") {
      return Braces();
    }
    if (key == "entry_computation_layout") return EntryLayout();
    if (key == "input_output_alias") return AliasList(&outline_->aliases);
    if (key == "buffer_donor") return DonorList();
    return Fail("an unknown attribute of the module");
  }

  // {(f32[2]{0}, ...)->f32[2]{0}}
  bool EntryLayout() {
    auto& parameters = outline_->entry_parameters.emplace();
    if (!Need("{") || !Need("(")) return false;
    if (!Eat(")")) {
      do {
        if (!Shape(&parameters.emplace_back())) return false;
      } while (Eat(","));
      if (!Need(")")) return false;
    }
    return Need("->") && Shape(&outline_->entry_result.emplace()) && Need("}");
  }

  bool DonorList() {
    if (!Need("{")) return false;
    if (Eat("}")) return true;
    do {
      if (!AliasSource(&outline_->donors.emplace_back())) return false;
    } while (Eat(","));
    return Need("}");
  }

  // The tables that metadata refers to.
  bool StackFrames() {
    if (!Eat("FileNames")) return true;
    int64_t num_files = 0;
    int64_t num_functions = 0;
    if (!Names(&num_files) || !Need("FunctionNames") ||
        !Names(&num_functions) || !Need("FileLocations")) {
      return false;
    }
    int64_t num_locations = 0;
    std::string row;
    while (Skip() && absl::ascii_isdigit(Peek())) {
      if (!Row(&row) || !IsWithin(row, "file_name_id", num_files) ||
          !IsWithin(row, "function_name_id", num_functions)) {
        return Fail("a location is not there");
      }
      ++num_locations;
    }
    if (!Need("StackFrames")) return false;
    while (Skip() && absl::ascii_isdigit(Peek())) {
      ++num_frames_;
      if (!Row(&row) || !IsWithin(row, "file_location_id", num_locations) ||
          !IsWithin(row, "parent_frame_id", num_frames_)) {
        return Fail("a stack frame is not there");
      }
    }
    return true;
  }

  bool Names(int64_t* count) {
    while (Skip() && absl::ascii_isdigit(Peek())) {
      int64_t number;
      if (!Int(&number) || !String()) return false;
      ++*count;
    }
    return true;
  }

  bool Row(std::string* row) {
    row->clear();
    int64_t number;
    return Int(&number) && Braces(row);
  }

  // --- a computation ---

  bool Computation() {
    const bool is_entry = absl::StartsWith(text_.substr(at_), "ENTRY ");
    if (is_entry) at_ += 5;
    OutlineComputation& self = outline_->computations.emplace_back();
    const auto number = static_cast<int32_t>(outline_->computations.size()) - 1;
    if (!Name(&self.name)) return false;
    if (is_entry) {
      if (outline_->entry >= 0) return Fail("two entry computations");
      outline_->entry = number;
    }
    if (Skip() && Peek() == '(' && !Signature()) return false;
    if (!Need("{")) return false;
    names_.clear();
    while (!Eat("}")) {
      if (!Instruction(&self)) return false;
    }
    if (self.instructions.empty()) return Fail("an empty computation");
    if (self.root < 0) {
      self.root = static_cast<int32_t>(self.instructions.size()) - 1;
    }
    if (Skip() && Peek() == ',') return Fail("a computation with attributes");
    return computations_.emplace(self.name, number).second ||
           Fail("two computations have one name");
  }

  // (x: f32[2], ...) -> f32[2]
  bool Signature() {
    OutlineShape shape;
    if (!Need("(")) return false;
    if (!Eat(")")) {
      do {
        absl::string_view name;
        if (!Name(&name) || !Need(":") || !Shape(&(shape = {}))) return false;
        if (const char* why = CheckShape(shape)) return Fail(why);
      } while (Eat(","));
      if (!Need(")")) return false;
    }
    if (!Need("->") || !Shape(&(shape = {}))) return false;
    const char* why = CheckShape(shape);
    return why == nullptr || Fail(why);
  }

  bool Instruction(OutlineComputation* computation) {
    if (!Skip()) return false;
    const auto number = static_cast<int32_t>(computation->instructions.size());
    if (absl::StartsWith(text_.substr(at_), "ROOT ")) {
      at_ += 4;
      if (computation->root >= 0) return Fail("two roots");
      computation->root = number;
    }
    OutlineInstruction& self = computation->instructions.emplace_back();
    if (!Name(&self.name) || !Need("=") || !Shape(&self.shape)) return false;
    const std::optional<Opcode> opcode = FindOpcode(Word());
    if (!opcode.has_value()) return Fail("an unknown operation");
    self.opcode = *opcode;
    if (!Need("(") || !Operands(&self)) return false;
    seen_.clear();
    while (Eat(",")) {
      if (!InstructionAttribute(&self)) return false;
    }
    AddDefaults(&self);
    return names_.emplace(self.name, number).second ||
           Fail("two instructions have one name");
  }

  bool Operands(OutlineInstruction* self) {
    if (self->opcode == Opcode::kParameter) {
      int64_t number;
      if (!Int(&number)) return false;
      self->Set(Field::kIndex, {number});
      return Need(")");
    }
    if (self->opcode == Opcode::kConstant) return Literal(self->shape);
    if (Eat(")")) return true;
    do {
      if (!Operand(self)) return false;
    } while (Eat(","));
    return Need(")");
  }

  bool Operand(OutlineInstruction* self) {
    if (!Skip()) return false;
    if (Peek() != '%') {
      // A shape may precede the name.
      const size_t before = at_;
      const bool is_tuple = Peek() == '(';
      Word();
      const bool has_shape = is_tuple || Peek() == '[';
      at_ = before;
      if (has_shape) {
        OutlineShape shape;
        if (!Shape(&shape)) return false;
        if (const char* why = CheckShape(shape)) return Fail(why);
      }
    }
    absl::string_view name;
    if (!Name(&name)) return false;
    const auto found = names_.find(name);
    if (found == names_.end()) return Fail("an operand is not there");
    self->operands.push_back(found->second);
    return true;
  }

  // XLA allocates what the shape says before it reads the values.
  bool IsLarge(const OutlineShape& shape, size_t length) {
    const int64_t bytes = LeafBytes(shape);
    if (bytes <= kMaxElidedBytes ||
        bytes <= 16 * static_cast<int64_t>(length)) {
      return false;
    }
    Refuse(Verdict::kInvalid,
           "a large constant without as many values: print constants in full "
           "(print_large_constants)");
    return true;
  }

  // Continues after the opening parenthesis.
  bool Literal(const OutlineShape& shape) {
    if (const char* why = CheckShape(shape)) {
      return Refuse(Verdict::kInvalid, why);
    }
    if (IsLarge(shape, text_.size() - at_)) return false;
    if (!IsPlainType(shape.type)) return Fail("a constant of a rare type");
    const size_t begin = at_;
    int depth = 1;
    while (depth > 0) {
      if (!Skip()) return false;
      const char c = Peek();
      if (!absl::ascii_isalnum(c) && !absl::StrContains("(){},.+-", c)) {
        return Fail("an unexpected character in a constant");
      }
      depth += (c == '(') - (c == ')');
      ++at_;
    }
    return !IsLarge(shape, at_ - begin);
  }

  bool InstructionAttribute(OutlineInstruction* self) {
    const absl::string_view key = Word();
    const auto attribute = Attributes().find(key);
    if (attribute == Attributes().end()) return Fail("an unknown attribute");
    if (absl::c_linear_search(seen_, key)) return Fail("an attribute twice");
    seen_.push_back(key);
    return Need("=") && Value(key, attribute->second, self);
  }

  bool Value(absl::string_view key, const Attribute& attribute,
             OutlineInstruction* self) {
    switch (attribute.kind) {
      case Kind::kIgnoredWord:
        if (Eat("+")) return Fail("an unexpected value");
        return !Word().empty() || Fail("expected a value");
      case Kind::kIgnoredBraces:
        return Braces();
      case Kind::kIgnoredString:
        return String();
      case Kind::kStringOrBraces:
        return Skip() && (Peek() == '"' ? String() : Braces());
      case Kind::kInts: {
        Ints values;
        if (!IntList(&values)) return false;
        self->Set(attribute.field, std::move(values));
        return true;
      }
      case Kind::kInt:
        return Number(attribute.field, self);
      case Kind::kWord:
        return CompareType(self);
      case Kind::kComputation:
        return CalledAs(key, self);
      case Kind::kComputations:
        return AllCalled(self);
      case Kind::kSlices:
        return Slices(self);
      case Kind::kPadding:
        return Padding(self);
      case Kind::kWindow:
        return Window(self);
      case Kind::kDimLabels:
        return DimLabels(self);
      case Kind::kNames:
        return Predecessors();
      case Kind::kShapes:
        return ConstrainedShapes(self);
      case Kind::kAliases:
        return AliasList(&self->aliases);
      case Kind::kMetadata:
        return Metadata();
      case Kind::kSharding:
        return Sharding();
    }
    return false;
  }

  bool FindComputation(int32_t* number) {
    absl::string_view name;
    if (!Name(&name)) return false;
    const auto found = computations_.find(name);
    if (found == computations_.end()) {
      return Fail("a computation is not there");
    }
    *number = found->second;
    return true;
  }

  // Two called computations are stored in the order of XLA's proto, which does
  // not depend on the order of the attributes.
  bool CalledAs(absl::string_view key, OutlineInstruction* self) {
    int32_t number;
    if (!FindComputation(&number)) return false;
    const bool is_first =
        key == "condition" || key == "select" || key == "true_computation";
    self->called.insert(is_first ? self->called.begin() : self->called.end(),
                        number);
    return true;
  }

  bool AllCalled(OutlineInstruction* self) {
    if (!Need("{")) return false;
    do {
      int32_t number;
      if (!FindComputation(&number)) return false;
      self->called.push_back(number);
    } while (Eat(","));
    return Need("}");
  }

  bool Predecessors() {
    if (!Need("{")) return false;
    if (Eat("}")) return true;
    do {
      absl::string_view name;
      if (!Name(&name)) return false;
      if (!names_.contains(name)) return Fail("a predecessor is not there");
    } while (Eat(","));
    return Need("}");
  }

  bool Metadata() {
    std::string text;
    if (!Braces(&text)) return false;
    return !absl::StrContains(text, "stack_frame_id") ||
           IsWithin(text, "stack_frame_id", num_frames_) ||
           Fail("a stack frame is not there");
  }

  // XLA's defaults for missing attributes.
  static void AddDefaults(OutlineInstruction* self) {
    if (self->opcode != Opcode::kConvolution) return;
    for (const Field field : {Field::kFeatureGroups, Field::kBatchGroups}) {
      if (self->Find(field) == nullptr) self->Set(field, {1});
    }
  }

  int64_t num_frames_ = 0;
  Outline* outline_ = nullptr;
  absl::flat_hash_map<absl::string_view, int32_t> computations_;
  // State of the computation that is being read.
  absl::flat_hash_map<absl::string_view, int32_t> names_;
  absl::InlinedVector<absl::string_view, 8> seen_;
};

}  // namespace

Doubt DoubtText(absl::string_view text) {
  Outline outline;
  Doubt doubt = Scanner(text).Scan(&outline);
  return doubt ? doubt : CheckOutline(&outline);
}

}  // namespace hloenv
