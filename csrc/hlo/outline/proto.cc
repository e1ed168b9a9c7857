// SPDX-License-Identifier: Apache-2.0
// Reads the structure of a serialized module.
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "hlo/outline/fields.h"
#include "xla/primitive_util.h"
#include "xla/service/hlo.pb.h"

namespace hloenv {
namespace {

using Opcode = xla::HloOpcode;

// Whether `layout` contains only an order of dimensions.
bool IsPlainLayout(const xla::LayoutProto& layout) {
  xla::LayoutProto plain;
  *plain.mutable_minor_to_major() = layout.minor_to_major();
  // Fields that XLA always writes.
  plain.set_tail_padding_alignment_in_elements(
      layout.tail_padding_alignment_in_elements());
  const bool is_padded = layout.tail_padding_alignment_in_elements() > 1;
  return !is_padded && layout.ByteSizeLong() == plain.ByteSizeLong();
}

// Whether XLA's parser reads all keys in the text that XLA prints of them.
bool HasPlainKeys(const xla::FrontendAttributes& attributes) {
  return absl::c_all_of(attributes.map(), [](const auto& each) {
    const std::string& key = each.first;
    return !key.empty() && (absl::ascii_isalpha(key[0]) || key[0] == '_') &&
           absl::c_all_of(key, [](char c) {
             return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
           });
  });
}

class Reader {
 public:
  explicit Reader(const xla::HloModuleProto& proto) : proto_(proto) {}

  Doubt Read(Outline* outline) {
    outline_ = outline;
    if (Module()) return {};
    std::string where;
    if (instruction_ != nullptr) {
      where = absl::StrCat("instruction '", instruction_->name(), "': ");
    }
    return {absl::StrCat(where, why_), verdict_};
  }

 private:
  // Always false.
  bool Fail(absl::string_view why) {
    if (why_.empty()) why_ = std::string(why);
    return false;
  }

  bool Shape(const xla::ShapeProto& proto, OutlineShape* shape,
             int nesting = 0) {
    if (nesting > kMaxShapeNesting) {
      verdict_ = Verdict::kNoModule;
      return Fail("a shape is nested too deep");
    }
    shape->type = proto.element_type();
    if (shape->type == xla::TUPLE) {
      if (proto.dimensions_size() > 0 || proto.has_layout()) {
        return Fail("a tuple with dimensions");
      }
      shape->elements.resize(proto.tuple_shapes_size());
      for (int i = 0; i < proto.tuple_shapes_size(); ++i) {
        if (!Shape(proto.tuple_shapes(i), &shape->elements[i], nesting + 1)) {
          return false;
        }
      }
      return true;
    }
    if (proto.tuple_shapes_size() > 0) return Fail("elements of no tuple");
    return Leaf(proto, shape);
  }

  bool Leaf(const xla::ShapeProto& proto, OutlineShape* shape) {
    if (shape->type == xla::TOKEN || shape->type == xla::OPAQUE_TYPE) {
      return (proto.dimensions_size() == 0 && !proto.has_layout()) ||
             Fail("a token with dimensions");
    }
    if (!xla::PrimitiveType_IsValid(shape->type) || !shape->IsArray()) {
      return Fail("an unknown type");
    }
    shape->dims = ToInts(proto.dimensions());
    if (proto.is_dynamic_dimension_size() != 0 &&
        proto.is_dynamic_dimension_size() != proto.dimensions_size()) {
      return Fail("dimensions that may be dynamic are of another number");
    }
    if (proto.has_layout()) {
      if (!IsPlainLayout(proto.layout())) {
        return Fail("a layout with more than an order");
      }
      shape->layout = ToInts(proto.layout().minor_to_major());
    }
    return true;
  }

  bool CheckedShape(const xla::ShapeProto& proto, OutlineShape* shape) {
    if (!Shape(proto, shape)) return false;
    const char* why = CheckShape(*shape);
    return why == nullptr || Fail(why);
  }

  bool Program(const xla::ProgramShapeProto& proto,
               std::vector<OutlineShape>* parameters, OutlineShape* result) {
    for (const xla::ShapeProto& each : proto.parameters()) {
      if (!CheckedShape(each, &parameters->emplace_back())) return false;
    }
    return CheckedShape(proto.result(), result);
  }

  // --- the module ---

  bool Module() {
    if (proto_.has_device_assignment() ||
        proto_.cross_program_prefetches_size() > 0 ||
        proto_.has_spmd_output_sharding() ||
        proto_.spmd_parameters_shardings_size() > 0 ||
        proto_.has_original_value_recovery_table()) {
      return Fail("the module has fields that the check does not know");
    }
    if (!HasPlainKeys(proto_.frontend_attributes())) {
      return Fail("a frontend attribute of an unusual name");
    }
    if (!StackFrames(proto_.stack_frame_index())) return false;
    for (const xla::HloComputationProto& each : proto_.computations()) {
      if (!Computation(each)) return false;
    }
    instruction_ = nullptr;
    const auto entry = computations_.find(proto_.entry_computation_id());
    if (entry == computations_.end()) return Fail("there is no entry");
    outline_->entry = entry->second;
    return Program(proto_.host_program_shape(),
                   &outline_->entry_parameters.emplace(),
                   &outline_->entry_result.emplace()) &&
           Schedule() && Aliases();
  }

  static bool IsId(int64_t id, int64_t count) { return id >= 1 && id <= count; }

  bool StackFrames(const xla::StackFrameIndexProto& index) {
    for (const auto& location : index.file_locations()) {
      if (!IsId(location.file_name_id(), index.file_names_size()) ||
          !IsId(location.function_name_id(), index.function_names_size())) {
        return Fail("a location is not there");
      }
    }
    num_frames_ = index.stack_frames_size();
    for (int64_t i = 0; i < num_frames_; ++i) {
      const auto& frame = index.stack_frames(static_cast<int>(i));
      // Ids start from 1; 0 means that there is no parent.
      if (!IsId(frame.file_location_id(), index.file_locations_size()) ||
          frame.parent_frame_id() < 0 || frame.parent_frame_id() > i) {
        return Fail("a stack frame is not there");
      }
    }
    return true;
  }

  // Every scheduled computation has all its instructions, operands first.
  bool Schedule() {
    for (const auto& [id, sequence] : proto_.schedule().sequences()) {
      const auto found = computations_.find(id);
      if (found == computations_.end()) {
        return Fail("a scheduled computation is not there");
      }
      const auto& ids = ids_[found->second];
      if (static_cast<int64_t>(ids.size()) != sequence.instruction_ids_size()) {
        return Fail("a schedule has other instructions");
      }
      std::vector<bool> is_done(ids.size(), false);
      const OutlineComputation& computation =
          outline_->computations[found->second];
      for (const int64_t instruction : sequence.instruction_ids()) {
        const auto position = ids.find(instruction);
        if (position == ids.end() || is_done[position->second]) {
          return Fail("a schedule has other instructions");
        }
        is_done[position->second] = true;
        for (const int32_t operand :
             computation.instructions[position->second].operands) {
          if (!is_done[operand]) return Fail("a schedule is out of order");
        }
      }
    }
    return !proto_.has_schedule() ||
           proto_.schedule().sequences().contains(
               proto_.entry_computation_id()) ||
           Fail("the entry computation is not scheduled");
  }

  bool Aliases() {
    for (const auto& each : proto_.input_output_alias().entries()) {
      if (each.kind() != xla::MAY_ALIAS && each.kind() != xla::MUST_ALIAS) {
        return Fail("an unknown kind of alias");
      }
      outline_->aliases.push_back({ToInts(each.output_shape_index()),
                                   each.parameter_number(),
                                   ToInts(each.parameter_shape_index())});
    }
    for (const auto& each : proto_.buffer_donor().entries()) {
      outline_->donors.push_back(
          {{}, each.parameter_number(), ToInts(each.parameter_shape_index())});
    }
    return true;
  }

  // --- a computation ---

  // XLA keeps instructions by the lower half of their ids.
  static int64_t LocalId(int64_t id) { return id & 0xffffffff; }

  bool Computation(const xla::HloComputationProto& proto) {
    const auto number = static_cast<int32_t>(outline_->computations.size());
    OutlineComputation& self = outline_->computations.emplace_back();
    self.name = proto.name();
    ids_.emplace_back();
    local_ids_.clear();
    if (proto.instructions_size() == 0) return Fail("an empty computation");
    if (!proto.execution_thread().empty() &&
        proto.execution_thread() != "main") {
      return Fail("a computation of another thread");
    }
    std::vector<OutlineShape> parameters;
    OutlineShape result;
    if (!Program(proto.program_shape(), &parameters, &result)) return false;
    self.instructions.reserve(proto.instructions_size());
    for (const xla::HloInstructionProto& each : proto.instructions()) {
      instruction_ = &each;
      const auto position = static_cast<int32_t>(self.instructions.size());
      if (each.id() < 0) return Fail("a negative id");
      if (!Instruction(each, &self.instructions.emplace_back())) return false;
      if (!ids_.back().emplace(each.id(), position).second ||
          !local_ids_.emplace(LocalId(each.id()), position).second) {
        return Fail("two instructions have one id");
      }
    }
    const auto root = ids_.back().find(proto.root_id());
    if (root == ids_.back().end()) return Fail("the root is not there");
    self.root = root->second;
    if (!SameShape(result, self.root_shape())) {
      return Fail("the computation has another result than its root");
    }
    if (proto.id() < 0 || proto.id() > std::numeric_limits<int32_t>::max()) {
      return Fail("the computation's id is out of range");
    }
    return computations_.emplace(proto.id(), number).second ||
           Fail("two computations have one id");
  }

  bool Instruction(const xla::HloInstructionProto& proto,
                   OutlineInstruction* self) {
    self->name = proto.name();
    const std::optional<Opcode> opcode = FindOpcode(proto.opcode());
    if (!opcode.has_value() || proto.name().empty()) {
      return Fail("an unknown operation");
    }
    self->opcode = *opcode;
    if (!Shape(proto.shape(), &self->shape)) return false;
    for (const int64_t id : proto.operand_ids()) {
      const auto found = ids_.back().find(id);
      if (found == ids_.back().end()) return Fail("an operand is not there");
      self->operands.push_back(found->second);
    }
    for (const int64_t id : proto.control_predecessor_ids()) {
      if (!ids_.back().contains(id)) return Fail("a predecessor is not there");
    }
    for (const int64_t id : proto.called_computation_ids()) {
      const auto found = computations_.find(id);
      if (found == computations_.end()) {
        return Fail("a computation is not there");
      }
      self->called.push_back(found->second);
    }
    if (self->opcode == Opcode::kWhile && self->called.size() == 2) {
      std::swap(self->called[0], self->called[1]);  // XLA writes the body first
    }
    return Common(proto) && Attributes(proto, self);
  }

  // Fields that are allowed on any instruction.
  bool Common(const xla::HloInstructionProto& proto) {
    // XLA writes some of these fields even if they are empty.
    const auto holds = [](const auto& field) {
      return field.ByteSizeLong() > 0;
    };
    if (proto.has_original_value() || holds(proto.statistics_viz()) ||
        holds(proto.parameter_replication()) ||
        holds(proto.result_accuracy()) || proto.has_domain_entry_sharding() ||
        proto.has_domain_exit_sharding() || holds(proto.outfeed_shape())) {
      return Fail("a field that the check does not know");
    }
    if (proto.has_sharding()) {
      const xla::OpSharding& sharding = proto.sharding();
      xla::OpSharding plain;
      plain.set_type(sharding.type());
      if ((sharding.type() != xla::OpSharding::REPLICATED &&
           sharding.type() != xla::OpSharding::MANUAL) ||
          sharding.ByteSizeLong() != plain.ByteSizeLong()) {
        return Fail("a sharding other than replicated");
      }
    }
    if (!HasPlainKeys(proto.frontend_attributes())) {
      return Fail("a frontend attribute of an unusual name");
    }
    const int64_t frame = proto.metadata().stack_frame_id();
    if (frame < 0 || frame > num_frames_) {
      return Fail("a stack frame is not there");
    }
    return !proto.has_precision_config() || Precision(proto.precision_config());
  }

  bool Precision(const xla::PrecisionConfig& config) {
    for (const int precision : config.operand_precision()) {
      if (!xla::PrecisionConfig::Precision_IsValid(precision)) {
        return Fail("an unknown precision");
      }
    }
    return xla::PrecisionConfig::Algorithm_IsValid(config.algorithm()) ||
           Fail("an unknown algorithm");
  }

  bool Attributes(const xla::HloInstructionProto& proto,
                  OutlineInstruction* self) {
    switch (self->opcode) {
      case Opcode::kParameter:
        self->Set(Field::kIndex, {proto.parameter_number()});
        return true;
      case Opcode::kGetTupleElement:
        self->Set(Field::kIndex, {proto.tuple_index()});
        return true;
      case Opcode::kBatchNormGrad:
      case Opcode::kBatchNormInference:
      case Opcode::kBatchNormTraining:
        self->Set(Field::kIndex, {proto.feature_index()});
        return true;
      case Opcode::kConstant:
        return Literal(proto, self->shape);
      case Opcode::kCompare:
        return CompareType(proto, self);
      case Opcode::kSlice:
        SetSlices(proto, self);
        return true;
      case Opcode::kDynamicSlice:
        self->Set(Field::kSizes, ToInts(proto.dynamic_slice_sizes()));
        return true;
      case Opcode::kPad:
        SetPadding(proto.padding_config(), self);
        return true;
      case Opcode::kDot:
        SetDot(proto.dot_dimension_numbers(), self);
        return true;
      case Opcode::kConvolution:
        SetConvolution(proto, self);
        return true;
      case Opcode::kReduceWindow:
      case Opcode::kSelectAndScatter:
        SetWindow(proto.window(), self);
        return true;
      case Opcode::kGather:
        SetGather(proto, self);
        return true;
      case Opcode::kScatter:
        SetScatter(proto.scatter_dimension_numbers(), self);
        return true;
      case Opcode::kFft:
        self->Set(Field::kSizes, ToInts(proto.fft_length()));
        return xla::FftType_IsValid(proto.fft_type()) ||
               Fail("an unknown type of FFT");
      case Opcode::kTopK:
        self->Set(Field::kSizes, {proto.k()});
        return true;
      case Opcode::kReducePrecision:
        self->Set(Field::kBits, {proto.exponent_bits(), proto.mantissa_bits()});
        return true;
      case Opcode::kRng:
        return xla::RandomDistribution_IsValid(proto.distribution()) ||
               Fail("an unknown distribution");
      case Opcode::kRngBitGenerator:
        return xla::RandomAlgorithm_IsValid(proto.rng_algorithm()) ||
               Fail("an unknown algorithm");
      case Opcode::kTriangularSolve:
        return xla::TriangularSolveOptions::Transpose_IsValid(
                   proto.triangular_solve_options().transpose_a()) ||
               Fail("an unknown transposition");
      case Opcode::kFusion:
      case Opcode::kCustomCall:
        return Calls(proto, self);
      default:
        self->Set(Field::kDimensions, ToInts(proto.dimensions()));
        return true;
    }
  }

  bool CompareType(const xla::HloInstructionProto& proto,
                   OutlineInstruction* self) {
    const absl::string_view kTypes[] = {"FLOAT", "TOTALORDER", "SIGNED",
                                        "UNSIGNED"};
    if (proto.comparison_type().empty()) return true;
    const auto* found = absl::c_find(kTypes, proto.comparison_type());
    if (found == std::end(kTypes)) return Fail("an unknown type of comparison");
    self->Set(Field::kCompareType, {found - std::begin(kTypes) + 1});
    return true;
  }

  bool Calls(const xla::HloInstructionProto& proto, OutlineInstruction* self) {
    if (proto.constrain_layout() &&
        proto.operand_shapes_with_layout_size() != proto.operand_ids_size()) {
      return Fail("it constrains other operands");
    }
    for (const xla::ShapeProto& each : proto.operand_shapes_with_layout()) {
      if (!Shape(each, &self->constrained_operands.emplace_back())) {
        return false;
      }
    }
    if (self->opcode == Opcode::kCustomCall && proto.has_literal()) {
      return Fail("a custom call with a constant");
    }
    if (!xla::CustomCallSchedule_IsValid(proto.custom_call_schedule()) ||
        !xla::CustomCallApiVersion_IsValid(proto.custom_call_api_version())) {
      verdict_ = Verdict::kInvalid;
      return Fail("an unknown schedule or version of a custom call");
    }
    if (!xla::PaddingType_IsValid(proto.padding_type())) {
      return Fail("an unknown padding");
    }
    for (const auto& each : proto.output_operand_aliasing()) {
      self->aliases.push_back({ToInts(each.output_shape_index()),
                               each.operand_index(),
                               ToInts(each.operand_shape_index())});
    }
    // XLA does not check these attributes of custom calls.
    return (!proto.has_window() &&
            !proto.has_convolution_dimension_numbers()) ||
           Fail("a custom call with a window");
  }

  // Checks the shape of a constant's literal and its number of values.
  bool Literal(const xla::HloInstructionProto& proto,
               const OutlineShape& shape) {
    const xla::LiteralProto& literal = proto.literal();
    OutlineShape own;
    if (!CheckedShape(literal.shape(), &own)) return false;
    if (const char* why = CheckShape(shape)) return Fail(why);
    if (!shape.IsArray() || !SameShape(own, shape) || !own.layout.has_value()) {
      return Fail("a constant of another shape");
    }
    if (absl::c_linear_search(literal.shape().is_dynamic_dimension(), true)) {
      return Fail("a constant of dynamic shape");
    }
    return NumValues(literal, shape.type) == NumElements(shape) ||
           Fail("a constant with another number of values");
  }

  // -1 for types that the check does not know.
  static int64_t NumValues(const xla::LiteralProto& literal,
                           xla::PrimitiveType type) {
    const auto of = [](const std::string& bytes, size_t width) {
      return bytes.size() % width == 0
                 ? static_cast<int64_t>(bytes.size() / width)
                 : -1;
    };
    const auto pairs = [](int64_t count) {
      return count % 2 == 0 ? count / 2 : -1;
    };
    switch (type) {
      case xla::PRED:
        return literal.preds_size();
      case xla::S8:
        return of(literal.s8s(), 1);
      case xla::U8:
        return of(literal.u8s(), 1);
      case xla::S16:
        return of(literal.s16s(), 2);
      case xla::U16:
        return of(literal.u16s(), 2);
      case xla::S32:
        return literal.s32s_size();
      case xla::U32:
        return literal.u32s_size();
      case xla::S64:
        return literal.s64s_size();
      case xla::U64:
        return literal.u64s_size();
      case xla::F16:
        return of(literal.f16s(), 2);
      case xla::BF16:
        return of(literal.bf16s(), 2);
      case xla::F32:
        return literal.f32s_size();
      case xla::F64:
        return literal.f64s_size();
      case xla::C64:
        return pairs(literal.c64s_size());
      case xla::C128:
        return pairs(literal.c128s_size());
      default:
        return -1;
    }
  }

  const xla::HloModuleProto& proto_;
  Outline* outline_ = nullptr;
  const xla::HloInstructionProto* instruction_ = nullptr;
  std::string why_;
  Verdict verdict_ = Verdict::kUnsure;
  int64_t num_frames_ = 0;
  absl::flat_hash_map<int64_t, int32_t> computations_;
  std::vector<absl::flat_hash_map<int64_t, int32_t>> ids_;
  absl::flat_hash_map<int64_t, int32_t> local_ids_;
};

}  // namespace

Doubt DoubtProto(const xla::HloModuleProto& proto) {
  Outline outline;
  Doubt doubt = Reader(proto).Read(&outline);
  return doubt ? doubt : CheckOutline(&outline);
}

}  // namespace hloenv
