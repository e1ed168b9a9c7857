// SPDX-License-Identifier: Apache-2.0
#include "hlo/jax_compat.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/xla_data.pb.h"

namespace hloenv {
namespace {

// Shardy's attributes begin with this.
constexpr absl::string_view kShardyPrefix = "xla.sdy.";

xla::FrontendAttributes WithoutShardy(
    const xla::FrontendAttributes& attributes) {
  xla::FrontendAttributes kept;
  for (const auto& [key, value] : attributes.map()) {
    if (!absl::StartsWith(key, kShardyPrefix)) {
      (*kept.mutable_map())[key] = value;
    }
  }
  return kept;
}

// Removes a member whose value is a list without brackets in its texts from a
// JSON object.
void RemoveListMember(absl::string_view name, std::string* json) {
  const std::string key = absl::StrCat("\"", name, "\":[");
  size_t begin = json->find(key);
  if (begin == std::string::npos) return;
  size_t end = begin + key.size();
  for (int depth = 1; depth > 0; ++end) {
    if (end >= json->size()) return;
    if ((*json)[end] == '[') ++depth;
    if ((*json)[end] == ']') --depth;
  }
  if (begin > 0 && (*json)[begin - 1] == ',') {
    --begin;
  } else if (end < json->size() && (*json)[end] == ',') {
    ++end;
  }
  json->erase(begin, end - begin);
}

}  // namespace

Module WithDefaultEntryLayout(const Module& module) {
  std::unique_ptr<xla::HloModule> hlo = module.CloneHlo();
  xla::ComputationLayout* layout = hlo->mutable_entry_computation_layout();
  layout->SetToDefaultLayout();
  return Module(std::move(hlo));
}

bool HasDonations(const Module& module) {
  bool has_alias = false;
  module.hlo().input_output_alias_config().ForEachAlias(
      [&](const xla::ShapeIndex&,
          const xla::HloInputOutputAliasConfig::Alias&) { has_alias = true; });
  return has_alias ||
         !module.hlo().buffer_donor_config().buffer_donor().empty();
}

Module WithoutDonations(const Module& module) {
  std::unique_ptr<xla::HloModule> hlo = module.CloneHlo();
  hlo->input_output_alias_config() =
      xla::HloInputOutputAliasConfig(hlo->result_shape());
  hlo->buffer_donor_config() = xla::HloBufferDonorConfig();
  return Module(std::move(hlo));
}

Module WithoutShardings(const Module& module) {
  std::unique_ptr<xla::HloModule> hlo = module.CloneHlo();
  for (xla::HloComputation* computation : hlo->computations()) {
    for (xla::HloInstruction* instruction : computation->instructions()) {
      instruction->clear_sharding();
      if (instruction->has_frontend_attributes()) {
        instruction->set_frontend_attributes(
            WithoutShardy(instruction->frontend_attributes()));
      }
    }
  }
  hlo->set_frontend_attributes(WithoutShardy(hlo->frontend_attributes()));
  return Module(std::move(hlo));
}

namespace {

// Removes a member of the configuration of loops. XLA writes members even where
// they are empty, so that clearing it in the proto would leave it in the text.
Module WithoutLoopMember(const Module& module, absl::string_view name) {
  std::unique_ptr<xla::HloModule> hlo = module.CloneHlo();
  for (xla::HloComputation* computation : hlo->computations()) {
    for (xla::HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() != xla::HloOpcode::kWhile ||
          !instruction->has_backend_config()) {
        continue;
      }
      std::string config = instruction->raw_backend_config_string();
      RemoveListMember(name, &config);
      instruction->set_raw_backend_config_string(std::move(config));
    }
  }
  return Module(std::move(hlo));
}

}  // namespace

Module ReadableByJaxlib(const Module& module) {
  return WithoutLoopMember(module, "dynamic_variable_tuple_indices");
}

Module ReadableHere(const Module& module) {
  return WithoutLoopMember(module, "dynamic_variables");
}

}  // namespace hloenv
