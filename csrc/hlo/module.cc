// SPDX-License-Identifier: Apache-2.0
#include "hlo/module.h"

#include "absl/strings/str_cat.h"
#include "hlo/analysis.h"
#include "hlo/order.h"
#include "hlo/read.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/service/hlo_cost_analysis.h"

namespace hloenv {
namespace {

constexpr absl::string_view kNoteAttribute = "hloenv_place";

}  // namespace

Module::Module(std::unique_ptr<xla::HloModule> hlo) {
  hlo->Cleanup();
  state_ = std::make_shared<State>();
  state_->hlo = std::move(hlo);
}

Module::State::State() = default;
Module::State::~State() = default;

const Analysis& Module::analysis() const {
  std::call_once(state_->analysis_flag, [this] {
    state_->analysis = std::make_unique<const Analysis>(*state_->hlo);
  });
  return *state_->analysis;
}

std::unique_ptr<xla::HloModule> Module::CloneHlo() const {
  return hlo().Clone(/*suffix=*/"");
}

Module Module::Clone() const { return Module(CloneHlo()); }

std::string Module::note() const {
  const auto& attributes = hlo().frontend_attributes().map();
  const auto it = attributes.find(std::string(kNoteAttribute));
  return it == attributes.end() ? "" : it->second;
}

Module Module::WithNote(absl::string_view note) const {
  std::unique_ptr<xla::HloModule> clone = CloneHlo();
  xla::FrontendAttributes attributes = hlo().frontend_attributes();
  auto& map = *attributes.mutable_map();
  map.erase(std::string(kNoteAttribute));
  if (!note.empty()) map[std::string(kNoteAttribute)] = std::string(note);
  clone->set_frontend_attributes(std::move(attributes));
  return Module(std::move(clone));
}

std::string Module::ToText(bool all_constants) const {
  xla::HloPrintOptions options;
  options.set_print_large_constants(all_constants);
  // If a computation has several callers, XLA may print a caller before it,
  // which XLA's parser rejects.
  const std::vector<xla::HloComputation*> order = CalleesFirst(hlo());
  if (absl::c_all_of(order, [](const xla::HloComputation* computation) {
        return computation->caller_computations().size() < 2;
      })) {
    return hlo().ToString(options);
  }
  const std::string whole = hlo().ToString(options);
  // The first computation's line ends so; those of the tables before it do not.
  const size_t brace = whole.find(" {\n");
  std::string text = whole.substr(0, whole.rfind('\n', brace) + 1);
  for (const xla::HloComputation* computation : order) {
    if (computation->IsAsyncComputation()) continue;  // printed at its caller
    absl::StrAppend(&text,
                    computation == hlo().entry_computation() ? "ENTRY " : "",
                    computation->ToString(options), "\n\n");
  }
  return text;
}

std::string Module::ToProto() const {
  return hlo().ToProto().SerializeAsString();
}

absl::Status Module::Verify(bool layout_sensitive) const {
  return VerifyHlo(CloneHlo().get(), layout_sensitive);
}

std::string Module::name() const { return hlo().name(); }

int64_t Module::instruction_count() const { return hlo().instruction_count(); }

int64_t Module::computation_count() const { return hlo().computation_count(); }

std::map<std::string, int64_t> Module::OpcodeCounts() const {
  std::map<std::string, int64_t> counts;
  for (const xla::HloComputation* computation : hlo().computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      ++counts[std::string(xla::HloOpcodeString(instruction->opcode()))];
    }
  }
  return counts;
}

absl::StatusOr<ModuleCost> Module::Cost() const {
  xla::HloCostAnalysis analysis([](const xla::Shape& shape) {
    return xla::ShapeUtil::ByteSizeOf(shape, /*pointer_size=*/sizeof(void*));
  });
  HLOENV_RETURN_IF_ERROR(Annotate(hlo().entry_computation()->Accept(&analysis),
                                  kInvalidModuleError,
                                  "XLA's cost analysis failed on the module"));
  ModuleCost cost;
  cost.flops = analysis.flop_count();
  cost.bytes_accessed = analysis.bytes_accessed();
  cost.transcendentals = analysis.transcendental_count();
  return cost;
}

std::vector<ArraySpec> FlatSpecs(const xla::Shape& shape) {
  std::vector<ArraySpec> specs;
  xla::ShapeUtil::ForEachSubshape(
      shape, [&](const xla::Shape& leaf, const xla::ShapeIndex&) {
        if (leaf.IsTuple()) return;
        ArraySpec spec;
        spec.dtype = xla::PrimitiveType_Name(leaf.element_type());
        std::transform(spec.dtype.begin(), spec.dtype.end(), spec.dtype.begin(),
                       [](unsigned char c) { return std::tolower(c); });
        if (leaf.IsArray()) {
          spec.dims.assign(leaf.dimensions().begin(), leaf.dimensions().end());
          if (leaf.has_layout()) {
            spec.layout.assign(leaf.layout().minor_to_major().begin(),
                               leaf.layout().minor_to_major().end());
          }
        }
        specs.push_back(std::move(spec));
      });
  return specs;
}

std::vector<ArraySpec> Module::InputSpecs() const {
  std::vector<ArraySpec> specs;
  for (const xla::HloInstruction* parameter :
       hlo().entry_computation()->parameter_instructions()) {
    for (ArraySpec& spec : FlatSpecs(parameter->shape())) {
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

std::vector<ArraySpec> Module::OutputSpecs() const {
  return FlatSpecs(hlo().result_shape());
}

std::string Module::EntryLayout() const {
  return hlo().entry_computation_layout().ToString();
}

}  // namespace hloenv
