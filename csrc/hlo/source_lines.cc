// SPDX-License-Identifier: Apache-2.0
#include "hlo/source_lines.h"

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace hloenv {
namespace {

// Ids count from 1. XLA's own lookup does not check them, and text may hold
// any.
template <typename Items>
const typename Items::value_type* Find(const Items& items, int64_t id) {
  if (id < 1 || id > items.size()) return nullptr;
  return &items.Get(static_cast<int>(id - 1));
}

void AddFrame(const xla::HloModule& module, int64_t id, SourceLine* line) {
  if (!module.stack_frame_index().has_value()) return;
  const xla::StackFrameIndexProto& index = *module.stack_frame_index();
  const auto* frame = Find(index.stack_frames(), id);
  if (frame == nullptr) return;
  const auto* location =
      Find(index.file_locations(), frame->file_location_id());
  if (location == nullptr) return;
  const auto* file = Find(index.file_names(), location->file_name_id());
  if (file == nullptr) return;
  line->file = *file;
  line->line = location->line();
}

}  // namespace

std::vector<SourceLine> SourceLines(const xla::HloModule& module) {
  std::vector<SourceLine> lines;
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      const auto& metadata = instruction->metadata();
      SourceLine line{
          std::string(instruction->name()), std::string(metadata.op_name()),
          std::string(metadata.source_file()), metadata.source_line()};
      if (line.file.empty()) AddFrame(module, metadata.stack_frame_id(), &line);
      if (line.op_name.empty() && line.file.empty()) continue;
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace hloenv
