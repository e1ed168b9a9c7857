// SPDX-License-Identifier: Apache-2.0
//
// A module is written out in a canonical form and that text is hashed. The form
// numbers instructions by a depth-first walk from the root through operands, so
// it depends on the graph alone; computations are numbered by first reference.
// Two things have no natural order: side-effecting instructions that nothing
// reaches, and control predecessors. They are walked in the order of a hash of
// what is below them. Effects with the same hash are told apart by what they
// share with each other and with the rest; only those that still look alike are
// walked in the order of the module.
#include "hlo/fingerprint.h"

#include <map>

#include "absl/strings/str_format.h"
#include "tsl/platform/fingerprint.h"
#include "xla/hlo/ir/hlo_schedule.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Appends fixed-size values and length-prefixed strings, so that no two
// different sequences give the same bytes.
class Writer {
 public:
  void Int(int64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void String(absl::string_view value) {
    Int(static_cast<int64_t>(value.size()));
    bytes_.append(value.data(), value.size());
  }
  void Shape(const xla::Shape& shape) {
    Int(shape.element_type());
    if (shape.IsTuple()) {
      Int(static_cast<int64_t>(shape.tuple_shapes().size()));
      for (const xla::Shape& element : shape.tuple_shapes()) Shape(element);
      return;
    }
    if (!shape.IsArray()) {
      String(shape.ToString(/*print_layout=*/true));
      return;
    }
    Int(shape.dimensions().size());
    for (int i = 0; i < static_cast<int>(shape.dimensions().size()); ++i) {
      Int(shape.dimensions(i) * 2 + (shape.is_dynamic_dimension(i) ? 1 : 0));
    }
    if (!shape.has_layout()) {
      Int(-1);
      return;
    }
    const xla::Layout& layout = shape.layout();
    for (int64_t dim : layout.minor_to_major()) Int(dim);
    if (!layout.tiles().empty() || layout.memory_space() != 0 ||
        layout.element_size_in_bits() != 0 || layout.has_physical_shape() ||
        layout.dynamic_shape_metadata_prefix_bytes() != 0) {
      String(layout.ToString());
    }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string LiteralBytes(const xla::Literal& literal) {
  Writer writer;
  xla::ShapeUtil::ForEachSubshape(
      literal.shape(),
      [&](const xla::Shape& leaf, const xla::ShapeIndex& index) {
        if (!leaf.IsArray()) return;
        writer.String(absl::string_view(
            static_cast<const char*>(literal.untyped_data(index)),
            literal.size_bytes(index)));
      });
  return writer.bytes();
}

// Attributes of one instruction other than shape, operands and called
// computations.
void WriteAttributes(const HloInstruction& instruction, Writer* writer) {
  switch (instruction.opcode()) {
    case HloOpcode::kParameter:
      writer->Int(instruction.parameter_number());
      break;
    case HloOpcode::kConstant: {
      const tsl::Fprint128 hash =
          tsl::Fingerprint128(LiteralBytes(instruction.literal()));
      writer->Int(static_cast<int64_t>(hash.low64));
      writer->Int(static_cast<int64_t>(hash.high64));
      break;
    }
    default:
      break;
  }
  static const xla::HloPrintOptions* const options = new xla::HloPrintOptions(
      xla::HloPrintOptions()
          .set_print_subcomputation_mode(
              xla::HloPrintOptions::PrintSubcomputationMode::kOff)
          .set_print_metadata(false)
          .set_print_original_value(false)
          .set_print_control_dependencies(false)
          .set_print_large_constants(false));
  for (const std::string& attribute :
       instruction.ExtraAttributesToString(*options)) {
    writer->String(attribute);
  }
  writer->String(instruction.raw_backend_config_string());
  if (instruction.opcode() == HloOpcode::kCustomCall) {
    writer->Int(instruction.HasSideEffectNoRecurse() ? 1 : 0);
  }
}

bool IsScalarConstant(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kConstant &&
         xla::ShapeUtil::IsScalar(instruction.shape());
}

class Fingerprinter {
 public:
  Fingerprinter() = default;
  // For a called computation: with the table of the fingerprint of its caller,
  // so that each is hashed once.
  explicit Fingerprinter(
      absl::flat_hash_map<const HloComputation*, uint64_t>* called_hashes)
      : called_hashes_(called_hashes) {}

  std::string Run(const xla::HloModule& module) {
    WriteConfig(module);
    Number(module.entry_computation());
    WriteReached(module);
    return Digest();
  }

  std::string RunKernel(const HloInstruction& instruction) {
    writer_.Int(static_cast<int64_t>(instruction.opcode()));
    writer_.Shape(instruction.shape());
    WriteAttributes(instruction, &writer_);
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      const HloInstruction* operand = instruction.operand(i);
      writer_.Int(instruction.operand_index(operand));
      writer_.Shape(operand->shape());
      if (IsScalarConstant(*operand)) WriteAttributes(*operand, &writer_);
    }
    for (const HloComputation* called : instruction.called_computations()) {
      writer_.Int(Number(called));
    }
    WriteReached(*instruction.GetModule());
    return Digest();
  }

  // Hash of `computation` and all that it calls.
  uint64_t RunComputation(const HloComputation& computation) {
    Number(&computation);
    WriteReached(*computation.parent());
    return tsl::Fingerprint64(writer_.bytes());
  }

 private:
  using Instructions = std::vector<const HloInstruction*>;
  using Hashes = absl::flat_hash_map<const HloInstruction*, uint64_t>;

  // Writes all computations that have a number.
  void WriteReached(const xla::HloModule& module) {
    // `computations_` grows while it is walked.
    for (size_t i = 0; i < computations_.size(); ++i) {
      WriteComputation(module, *computations_[i]);
    }
  }

  std::string Digest() const {
    const tsl::Fprint128 hash = tsl::Fingerprint128(writer_.bytes());
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

  int64_t Number(const HloComputation* computation) {
    auto [it, is_new] = numbers_.try_emplace(
        computation, static_cast<int64_t>(computations_.size()));
    if (is_new) computations_.push_back(computation);
    return it->second;
  }

  void WriteConfig(const xla::HloModule& module) {
    const xla::HloModuleConfig& config = module.config();
    writer_.String(config.has_entry_computation_layout()
                       ? config.entry_computation_layout().ToString()
                       : "");
    writer_.String(module.input_output_alias_config().ToString());
    writer_.String(module.buffer_donor_config().ToString());
    writer_.Int(config.replica_count());
    writer_.Int(config.num_partitions());
    const auto& attributes = module.frontend_attributes().map();
    for (const auto& [key, value] : std::map<std::string, std::string>(
             attributes.begin(), attributes.end())) {
      writer_.String(key);
      writer_.String(value);
    }
  }

  // Hash of `instruction` and all below it, without sharing. Used for order
  // only.
  uint64_t TreeHash(const HloInstruction* instruction) {
    Instructions stack = {instruction};
    while (!stack.empty()) {
      const HloInstruction* top = stack.back();
      if (tree_hashes_.contains(top)) {
        stack.pop_back();
        continue;
      }
      bool ready = true;
      for (const HloInstruction* operand : top->operands()) {
        if (!tree_hashes_.contains(operand)) {
          stack.push_back(operand);
          ready = false;
        }
      }
      if (!ready) continue;
      Writer writer;
      writer.Int(static_cast<int64_t>(top->opcode()));
      writer.Shape(top->shape());
      WriteAttributes(*top, &writer);
      for (const HloInstruction* operand : top->operands()) {
        writer.Int(static_cast<int64_t>(tree_hashes_.at(operand)));
      }
      tree_hashes_[top] = tsl::Fingerprint64(writer.bytes());
      stack.pop_back();
    }
    return tree_hashes_.at(instruction);
  }

  void SortByTreeHash(Instructions* instructions) {
    if (instructions->size() < 2) return;
    std::stable_sort(instructions->begin(), instructions->end(),
                     [this](const HloInstruction* a, const HloInstruction* b) {
                       return TreeHash(a) < TreeHash(b);
                     });
  }

  bool IsNumbered(const HloInstruction* instruction) const {
    return numbers_in_computation_[instruction->local_id()] >= 0;
  }

  // What `effects` depend on and what has no number yet, themselves included.
  Instructions Unnumbered(const Instructions& effects) const {
    Instructions found;
    absl::flat_hash_set<const HloInstruction*> seen;
    const auto add = [&](const HloInstruction* instruction) {
      if (!IsNumbered(instruction) && seen.insert(instruction).second) {
        found.push_back(instruction);
      }
    };
    for (const HloInstruction* effect : effects) add(effect);
    for (size_t i = 0; i < found.size(); ++i) {  // `found` grows
      for (const HloInstruction* operand : found[i]->operands()) add(operand);
      for (const HloInstruction* before : found[i]->control_predecessors()) {
        add(before);
      }
    }
    return found;
  }

  uint64_t CalledHash(const HloComputation* computation) {
    const auto found = called_hashes_->find(computation);
    if (found != called_hashes_->end()) return found->second;
    const uint64_t hash =
        Fingerprinter(called_hashes_).RunComputation(*computation);
    (*called_hashes_)[computation] = hash;
    return hash;
  }

  // A hash for each of `nodes`, the result of Unnumbered, of the instruction,
  // of its transitive operands and of its transitive users among `nodes`;
  // numbered instructions are hashed by number.
  Hashes Refine(const Instructions& nodes) {
    Hashes hashes;
    for (const HloInstruction* node : nodes) {
      Writer writer;
      writer.Int(static_cast<int64_t>(TreeHash(node)));
      for (const HloComputation* called : node->called_computations()) {
        auto it = numbers_.find(called);
        writer.Int(it != numbers_.end()
                       ? it->second
                       : static_cast<int64_t>(CalledHash(called)));
      }
      hashes[node] = tsl::Fingerprint64(writer.bytes());
    }
    const auto hash_of = [&](const HloInstruction* instruction) {
      return IsNumbered(instruction)
                 ? static_cast<uint64_t>(
                       numbers_in_computation_[instruction->local_id()])
                 : hashes.at(instruction);
    };
    size_t num_classes = 0;
    while (true) {
      absl::flat_hash_set<uint64_t> classes;
      for (const auto& [node, hash] : hashes) classes.insert(hash);
      if (classes.size() == num_classes) return hashes;
      num_classes = classes.size();
      absl::flat_hash_map<const HloInstruction*, std::vector<uint64_t>> around;
      const auto note = [&](const HloInstruction* below, uint64_t edge,
                            const HloInstruction* above) {
        if (!IsNumbered(below)) {
          around[below].push_back(
              tsl::FingerprintCat64(edge, hashes.at(above)));
        }
      };
      for (const HloInstruction* node : nodes) {
        for (int64_t i = 0; i < node->operand_count(); ++i) {
          note(node->operand(i), i, node);
        }
        for (const HloInstruction* before : node->control_predecessors()) {
          note(before, -1, node);
        }
      }
      Hashes next;
      for (const HloInstruction* node : nodes) {
        Writer writer;
        writer.Int(static_cast<int64_t>(hashes.at(node)));
        for (const HloInstruction* operand : node->operands()) {
          writer.Int(static_cast<int64_t>(hash_of(operand)));
        }
        std::vector<uint64_t> predecessors;
        for (const HloInstruction* before : node->control_predecessors()) {
          predecessors.push_back(hash_of(before));
        }
        for (std::vector<uint64_t>* set : {&predecessors, &around[node]}) {
          std::sort(set->begin(), set->end());
          writer.Int(static_cast<int64_t>(set->size()));
          for (uint64_t hash : *set) writer.Int(static_cast<int64_t>(hash));
        }
        next[node] = tsl::Fingerprint64(writer.bytes());
      }
      hashes = std::move(next);
    }
  }

  // Walks `effects`, sorted by their hashes; among equal ones, first those that
  // come first by what they share.
  void WalkEffects(Instructions effects) {
    SortByTreeHash(&effects);
    while (!effects.empty()) {
      size_t num_equal = 1;
      while (num_equal < effects.size() &&
             TreeHash(effects[num_equal]) == TreeHash(effects[0])) {
        ++num_equal;
      }
      size_t chosen = 0;
      if (num_equal > 1) {
        const Hashes hashes = Refine(Unnumbered(effects));
        for (size_t i = 1; i < num_equal; ++i) {
          if (hashes.at(effects[i]) < hashes.at(effects[chosen])) chosen = i;
        }
      }
      Walk(effects[chosen]);
      effects.erase(std::remove_if(effects.begin(), effects.end(),
                                   [this](const HloInstruction* effect) {
                                     return IsNumbered(effect);
                                   }),
                    effects.end());
    }
  }

  void WriteComputation(const xla::HloModule& module,
                        const HloComputation& computation) {
    int32_t num_ids = 0;
    for (const HloInstruction* instruction : computation.instructions()) {
      num_ids = std::max(num_ids, instruction->local_id() + 1);
    }
    tree_hashes_.clear();
    numbers_in_computation_.assign(num_ids, -1);
    next_number_ = 0;
    writer_.Int(computation.num_parameters());
    for (const HloInstruction* parameter :
         computation.parameter_instructions()) {
      writer_.Shape(parameter->shape());
    }
    writer_.String(computation.execution_thread());
    Walk(computation.root_instruction());
    // Side effects that the root does not depend on are live; their dead users
    // do not count.
    Instructions effects;
    for (const HloInstruction* instruction : computation.instructions()) {
      if (!IsNumbered(instruction) && instruction->HasSideEffect()) {
        effects.push_back(instruction);
      }
    }
    WalkEffects(std::move(effects));
    writer_.Int(-2);  // end of the computation
    if (module.has_schedule() &&
        module.schedule().is_computation_scheduled(&computation)) {
      for (const HloInstruction* instruction :
           module.schedule().sequence(&computation).instructions()) {
        writer_.Int(numbers_in_computation_[instruction->local_id()]);
      }
    }
  }

  void Walk(const HloInstruction* root) {
    Instructions stack = {root};
    Instructions below;
    while (!stack.empty()) {
      const HloInstruction* top = stack.back();
      int32_t& number = numbers_in_computation_[top->local_id()];
      if (number >= 0) {
        stack.pop_back();
        continue;
      }
      if (number == kOpen) {
        number = next_number_++;
        Write(*top);
        stack.pop_back();
        continue;
      }
      number = kOpen;
      below.assign(top->control_predecessors().begin(),
                   top->control_predecessors().end());
      SortByTreeHash(&below);
      // Pushed last, visited first: operands before control predecessors.
      for (auto it = below.rbegin(); it != below.rend(); ++it)
        Push(*it, &stack);
      for (int64_t i = top->operand_count() - 1; i >= 0; --i) {
        Push(top->operand(i), &stack);
      }
    }
  }

  void Push(const HloInstruction* instruction, Instructions* stack) {
    if (numbers_in_computation_[instruction->local_id()] == kUnseen) {
      stack->push_back(instruction);
    }
  }

  void Write(const HloInstruction& instruction) {
    writer_.Int(static_cast<int64_t>(instruction.opcode()));
    writer_.Shape(instruction.shape());
    WriteAttributes(instruction, &writer_);
    for (const HloInstruction* operand : instruction.operands()) {
      writer_.Int(numbers_in_computation_[operand->local_id()]);
    }
    writer_.Int(-3);
    for (const HloComputation* called : instruction.called_computations()) {
      writer_.Int(Number(called));
    }
    std::vector<int32_t> predecessors;
    for (const HloInstruction* predecessor :
         instruction.control_predecessors()) {
      predecessors.push_back(numbers_in_computation_[predecessor->local_id()]);
    }
    std::sort(predecessors.begin(), predecessors.end());
    for (int32_t predecessor : predecessors) writer_.Int(predecessor);
    writer_.Int(-4);
  }

  static constexpr int32_t kUnseen = -1;
  static constexpr int32_t kOpen = -2;

  Writer writer_;
  absl::flat_hash_map<const HloComputation*, int64_t> numbers_;
  std::vector<const HloComputation*> computations_;
  Hashes tree_hashes_;
  absl::flat_hash_map<const HloComputation*, uint64_t> own_called_hashes_;
  absl::flat_hash_map<const HloComputation*, uint64_t>* called_hashes_ =
      &own_called_hashes_;
  std::vector<int32_t> numbers_in_computation_;
  int32_t next_number_ = 0;
};

}  // namespace

std::string Fingerprint(const xla::HloModule& module) {
  return Fingerprinter().Run(module);
}

std::string FingerprintKernel(const HloInstruction& instruction) {
  return Fingerprinter().RunKernel(instruction);
}

}  // namespace hloenv
