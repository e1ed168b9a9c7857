// SPDX-License-Identifier: Apache-2.0
#include "hlo/read.h"

#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/config.h"
#include "hlo/left_out.h"
#include "hlo/literal_text.h"
#include "hlo/outline/outline.h"
#include "support/quiet.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/parser/hlo_parser.h"
#include "xla/hlo/transforms/expanders/dynamic_index_splitter.h"
#include "xla/service/hlo.pb.h"
#include "xla/service/hlo_verifier.h"
#include "xla/service/layout_assignment.h"

namespace hloenv {
namespace {

using OwnedHlo = std::unique_ptr<xla::HloModule>;

absl::Status ToStatus(const Doubt& doubt) {
  if (!doubt) return absl::OkStatus();
  switch (doubt.verdict) {
    case Verdict::kNoModule:
      return Error(kParseError, doubt.reason);
    case Verdict::kInvalid:
      return Error(kInvalidModuleError, doubt.reason);
    case Verdict::kUnsure:
      break;
  }
  return Error(kDoubtfulModuleError, doubt.reason);
}

absl::Status CheckShape(const xla::Shape& shape, absl::string_view where) {
  return Annotate(xla::ShapeUtil::ValidateShapeWithOptionalLayout(shape),
                  kInvalidModuleError, where);
}

// XLA's cost analysis, which some passes use, reads the first index of a slice,
// but a slice of a scalar has none.
absl::Status CheckIndices(const xla::HloInstruction& slice) {
  const auto* indexed = xla::DynCast<xla::HloDynamicIndexInstruction>(&slice);
  if (indexed == nullptr ||
      indexed->operand_count() > indexed->first_index_operand_number()) {
    return absl::OkStatus();
  }
  return Error(kInvalidModuleError,
               absl::StrCat("instruction '", slice.name(),
                            "' is a slice of a scalar, which has no index; use "
                            "its operand instead"));
}

// All shapes and their layouts. The verifier fails a CHECK where a layout is no
// permutation.
absl::Status CheckShapes(const xla::HloModule& hlo) {
  for (const xla::HloComputation* computation : hlo.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      HLOENV_RETURN_IF_ERROR(
          CheckShape(instruction->shape(), instruction->name()));
      HLOENV_RETURN_IF_ERROR(CheckIndices(*instruction));
    }
  }
  const xla::ComputationLayout& entry = hlo.entry_computation_layout();
  for (int i = 0; i < entry.parameter_count(); ++i) {
    HLOENV_RETURN_IF_ERROR(
        CheckShape(entry.parameter_layout(i).shape(), "the entry layout"));
  }
  return CheckShape(entry.result_layout().shape(), "the entry layout");
}

// As XLA's text parser does: text has no way to say that a layout is not set.
void SetDefaultLayout(xla::Shape* shape) {
  xla::ShapeUtil::ForEachMutableSubshape(
      shape, [](xla::Shape* part, const xla::ShapeIndex&) {
        if (part->IsArray() && !part->has_layout()) {
          xla::LayoutUtil::SetToDefaultLayout(part);
        }
      });
}

void SetDefaultLayouts(xla::HloModule* hlo) {
  for (xla::HloComputation* computation : hlo->computations()) {
    for (xla::HloInstruction* instruction : computation->instructions()) {
      SetDefaultLayout(instruction->mutable_shape());
    }
  }
  const auto set = [](xla::ShapeLayout* layout) {
    if (layout->LayoutIsSet()) return;
    xla::Shape shape = layout->shape();
    SetDefaultLayout(&shape);
    *layout = xla::ShapeLayout(shape);
  };
  xla::ComputationLayout* entry = hlo->mutable_entry_computation_layout();
  for (int i = 0; i < entry->parameter_count(); ++i) {
    set(entry->mutable_parameter_layout(i));
  }
  set(entry->mutable_result_layout());
}

// Escapes in strings of the text stand for any bytes; protos hold UTF-8, and
// what they cannot hold could not be saved and read again.
absl::Status CheckEscapes(absl::string_view text, const xla::HloModule& hlo) {
  bool has_bytes = false;
  for (size_t at = text.find('\\'); at < text.size() && !has_bytes;
       at = text.find('\\', at + 1)) {
    has_bytes =
        at + 1 < text.size() && absl::StrContains("01234567xX", text[at + 1]);
  }
  if (!has_bytes) return absl::OkStatus();
  xla::HloModuleProto proto;
  if (proto.ParseFromString(hlo.ToProto().SerializeAsString())) {
    return absl::OkStatus();
  }
  return Error(kInvalidModuleError,
               absl::StrCat("module '", hlo.name(),
                            "' has a string with an escape that is not UTF-8 "
                            "(in metadata, a target or an attribute), which no "
                            "proto can hold"));
}

absl::StatusOr<OwnedHlo> ParseText(absl::string_view text) {
  HLOENV_ASSIGN_OR_RETURN(xla::HloModuleConfig config, DefaultModuleConfig());
  const ReadableText readable = MakeReadable(text);
  auto parsed = xla::ParseAndReturnUnverifiedModule(readable.text, config);
  if (!parsed.ok()) {
    return Annotate(parsed.status(), kParseError, "this is not HLO text");
  }
  if (!(*parsed)->has_entry_computation()) {
    return Error(kParseError, "the HLO text has no ENTRY computation");
  }
  if (!SetNans(readable.nans, parsed->get())) {
    return Error(kParseError,
                 "the HLO text has NaNs in complex constants that XLA's parser "
                 "did not keep in the order of the text");
  }
  HLOENV_RETURN_IF_ERROR(CheckEscapes(text, **parsed));
  return *std::move(parsed);
}

absl::StatusOr<xla::HloModuleProto> ParseProto(absl::string_view bytes) {
  xla::HloModuleProto proto;
  const std::string data(bytes);
  if (proto.ParseFromString(data) && proto.computations_size() > 0) {
    return proto;
  }
  xla::HloProto wrapper;
  if (wrapper.ParseFromString(data) &&
      wrapper.hlo_module().computations_size() > 0) {
    return std::move(*wrapper.mutable_hlo_module());
  }
  return Error(kParseError,
               absl::StrCat("these ", bytes.size(),
                            " bytes are neither HLO text, which starts with "
                            "HloModule, nor a serialized HloModuleProto with "
                            "at least one computation"));
}

absl::StatusOr<OwnedHlo> MakeHlo(const xla::HloModuleProto& proto) {
  HLOENV_ASSIGN_OR_RETURN(xla::HloModuleConfig defaults, DefaultModuleConfig());
  auto config = xla::HloModule::CreateModuleConfigFromProto(
      proto, defaults.debug_options());
  if (!config.ok()) {
    return Annotate(config.status(), kParseError,
                    "the proto's program shape cannot be read");
  }
  auto hlo = xla::HloModule::CreateFromProto(
      proto, *config, /*prohibit_empty_literal=*/true, /*comp_envs=*/nullptr,
      /*preserve_instruction_ids=*/false);
  if (!hlo.ok()) {
    return Annotate(hlo.status(), kParseError,
                    "the proto is not a well-formed module");
  }
  SetDefaultLayouts(hlo->get());
  return *std::move(hlo);
}

// XLA's functions return statuses, but StatusOr::value() throws where one is
// not looked at, and large sizes throw bad_alloc.
template <typename Function>
auto CatchAll(absl::string_view kind, Function function)
    -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    return Error(kind, absl::StrCat("XLA raised ", error.what()));
  }
}

// A dynamic slice whose starts are one array, as older versions of XLA wrote
// it; null if there is none.
const xla::HloInstruction* SliceWithOneStart(const xla::HloModule& hlo) {
  for (const xla::HloComputation* computation : hlo.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      const auto* slice =
          xla::DynCast<xla::HloDynamicIndexInstruction>(instruction);
      if (slice == nullptr) continue;
      const xla::HloInstruction* start =
          slice->operand(slice->first_index_operand_number());
      if (!start->shape().dimensions().empty()) return slice;
    }
  }
  return nullptr;
}

// XLA's evaluator and simplifiers misread such a slice, or crash on it, but its
// verifier takes it.
absl::Status SplitStarts(xla::HloModule* hlo) {
  if (SliceWithOneStart(*hlo) == nullptr) return absl::OkStatus();
  if (!hlo->has_schedule()) {
    HLOENV_RETURN_IF_ERROR(xla::DynamicIndexSplitter().Run(hlo).status());
  }
  const xla::HloInstruction* left = SliceWithOneStart(*hlo);
  if (left == nullptr) return absl::OkStatus();
  return Error(
      kInvalidModuleError,
      absl::StrCat("instruction '", left->name(),
                   "' has its starts in one array, as older versions of XLA "
                   "wrote it, in a fusion or a scheduled module; give it a "
                   "scalar for each dimension"));
}

absl::StatusOr<Module> Finish(OwnedHlo hlo, const ReadOptions& options) {
  if (options.verify) {
    HLOENV_RETURN_IF_ERROR(VerifyHlo(hlo.get()));
    HLOENV_RETURN_IF_ERROR(SplitStarts(hlo.get()));
  }
  return Module(std::move(hlo));
}

}  // namespace

absl::StatusOr<Module> ReadText(absl::string_view text,
                                const ReadOptions& options) {
  QuietScope scope;
  if (options.check_structure) {
    HLOENV_RETURN_IF_ERROR(ToStatus(DoubtText(text)));
  }
  HLOENV_ASSIGN_OR_RETURN(OwnedHlo hlo, CatchAll(kInvalidModuleError, [&] {
                            return ParseText(text);
                          }));
  FillLeftOutConstants(text, hlo.get());
  return Finish(std::move(hlo), options);
}

absl::StatusOr<Module> ReadProto(absl::string_view bytes,
                                 const ReadOptions& options) {
  QuietScope scope;
  HLOENV_ASSIGN_OR_RETURN(const xla::HloModuleProto proto, ParseProto(bytes));
  if (options.check_structure) {
    HLOENV_RETURN_IF_ERROR(ToStatus(DoubtProto(proto)));
  }
  HLOENV_ASSIGN_OR_RETURN(OwnedHlo hlo, CatchAll(kInvalidModuleError, [&] {
                            return MakeHlo(proto);
                          }));
  return Finish(std::move(hlo), options);
}

absl::Status VerifyHlo(xla::HloModule* hlo, bool layout_sensitive) {
  absl::Status status = CheckShapes(*hlo);
  // An empty schedule passes the verifier, and text cannot say it.
  if (status.ok() && hlo->has_schedule()) {
    status = hlo->schedule().empty()
                 ? absl::InvalidArgumentError("its schedule is empty")
                 : hlo->schedule().Verify();
  }
  if (status.ok()) {
    xla::HloVerifierOpts options;
    if (layout_sensitive) {
      options.MakeLayoutSensitive().WithInstructionCanChangeLayout(
          xla::LayoutAssignment::InstructionCanChangeLayout);
    }
    xla::HloVerifier verifier(std::move(options));
    status = CatchAll(kInvalidModuleError,
                      [&] { return verifier.Run(hlo).status(); });
  }
  return Annotate(status, kInvalidModuleError,
                  absl::StrCat("module '", hlo->name(), "' is not valid HLO"));
}

absl::Status CheckStillValid(const Module& before, xla::HloModule* after,
                             absl::string_view pass) {
  xla::HloVerifier verifier(/*layout_sensitive=*/false,
                            /*allow_mixed_precision=*/true);
  const absl::Status status = CatchAll(
      kInvalidModuleError, [&] { return verifier.Run(after).status(); });
  if (status.ok() || !before.Verify().ok()) return absl::OkStatus();
  return Error(
      kPassError,
      absl::StrCat("pass '", pass, "' makes the valid module '", before.name(),
                   "' invalid (an XLA bug): ", status.message(),
                   "; leave the pass out, or run it at another position"));
}

}  // namespace hloenv
