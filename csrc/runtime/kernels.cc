// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels.h"

#include <deque>
#include <queue>
#include <utility>

#include "backend/thunk_order.h"
#include "hlo/fingerprint.h"
#include "hlo/trip_count.h"
#include "xla/hlo/analysis/hlo_dataflow_analysis.h"
#include "xla/hlo/ir/hlo_clone_context.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::ShapeIndex;

bool IsScalarConstant(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kConstant &&
         xla::ShapeUtil::IsScalar(instruction.shape());
}

}  // namespace

KernelGraph::KernelGraph(const Module& module)
    : module_(module), in_order_(SequentialComputations(module.hlo())) {
  if (!in_order_.empty()) {
    std::unique_ptr<xla::HloModule> unmarked = module.CloneHlo();
    ClearOrder(unmarked.get());
    module_ = Module(std::move(unmarked));
  }
  AddComputation(module_.hlo().entry_computation());
}

int64_t KernelGraph::AddComputation(const HloComputation* computation) {
  if (auto it = index_of_.find(computation); it != index_of_.end()) {
    return it->second;
  }
  Computation made;
  made.is_graph =
      RunsAsGraph(*computation) && !in_order_.contains(computation->name());
  std::vector<Node>& nodes = made.nodes;
  absl::flat_hash_map<const HloInstruction*, int64_t> number_of;
  for (const HloInstruction* instruction :
       computation->MakeInstructionPostOrder()) {
    const int64_t number = static_cast<int64_t>(nodes.size());
    number_of[instruction] = number;
    nodes.push_back(MakeNode(instruction));
    auto follow = [&](const HloInstruction* earlier) {
      nodes[number_of.at(earlier)].successors.push_back(number);
      ++nodes.back().num_predecessors;
    };
    for (const HloInstruction* operand : instruction->operands()) {
      follow(operand);
    }
    for (const HloInstruction* earlier : instruction->control_predecessors()) {
      follow(earlier);
    }
  }
  const int64_t index = static_cast<int64_t>(computations_.size());
  computations_.push_back(std::move(made));
  index_of_[computation] = index;
  return index;
}

KernelGraph::Node KernelGraph::MakeNode(const HloInstruction* instruction) {
  Node node;
  if (IsFree(*instruction)) return node;
  switch (instruction->opcode()) {
    case HloOpcode::kCall:
      node.computations = {AddComputation(instruction->to_apply())};
      return node;
    case HloOpcode::kConditional:
      for (const HloComputation* branch : instruction->branch_computations()) {
        node.computations.push_back(AddComputation(branch));
      }
      node.runs = 1.0 / instruction->branch_count();
      return node;
    case HloOpcode::kWhile: {
      const int64_t trips = WhileTripCount(*instruction);
      node.computations = {AddComputation(instruction->while_condition()),
                           AddComputation(instruction->while_body())};
      node.runs = trips >= 0 ? static_cast<double>(trips) : kAssumedTrips;
      return node;
    }
    default:
      break;
  }
  auto [it, is_new] =
      kernel_of_.try_emplace(FingerprintKernel(*instruction),
                             static_cast<int64_t>(fingerprints_.size()));
  if (is_new) {
    fingerprints_.push_back(it->first);
    examples_.push_back(instruction);
  }
  node.kernel = it->second;
  return node;
}

std::vector<std::string> KernelGraph::Names() const {
  std::vector<std::string> names;
  for (const HloInstruction* example : examples_) {
    names.emplace_back(example->name());
  }
  return names;
}

std::vector<std::string> KernelGraph::Opcodes() const {
  std::vector<std::string> opcodes;
  for (const HloInstruction* example : examples_) {
    opcodes.emplace_back(xla::HloOpcodeString(example->opcode()));
  }
  return opcodes;
}

std::vector<double> KernelGraph::NumRuns() const {
  std::vector<double> of_kernel(fingerprints_.size());
  std::vector<double> of_computation(computations_.size());
  of_computation.back() = 1;
  for (size_t i = computations_.size(); i-- > 0;) {
    for (const Node& node : computations_[i].nodes) {
      if (node.kernel >= 0) of_kernel[node.kernel] += of_computation[i];
      for (int64_t callee : node.computations) {
        of_computation[callee] += of_computation[i] * node.runs;
      }
    }
  }
  return of_kernel;
}

double KernelGraph::TotalNs(absl::Span<const double> kernel_ns, int num_threads,
                            double graph_step_ns) const {
  std::vector<double> known;
  for (size_t i = 0; i < computations_.size(); ++i) {
    known.push_back(DurationNs(static_cast<int64_t>(i), kernel_ns, num_threads,
                               graph_step_ns, &known));
  }
  return known.back();
}

double KernelGraph::DurationNs(int64_t computation,
                               absl::Span<const double> kernel_ns,
                               int num_threads, double graph_step_ns,
                               std::vector<double>* known) const {
  const auto& [nodes, is_graph] = computations_[computation];
  std::vector<double> durations(nodes.size());
  double sum_ns = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kernel >= 0) durations[i] = kernel_ns[nodes[i].kernel];
    for (int64_t callee : nodes[i].computations) {
      durations[i] += (*known)[callee] * nodes[i].runs;
    }
    const bool is_step = nodes[i].kernel >= 0 || !nodes[i].computations.empty();
    if (is_graph && is_step) durations[i] += graph_step_ns;
    sum_ns += durations[i];
  }
  if (num_threads <= 1 || !is_graph) return sum_ns;

  std::vector<int64_t> waits_for(nodes.size());
  std::deque<int64_t> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    waits_for[i] = nodes[i].num_predecessors;
    if (waits_for[i] == 0) ready.push_back(static_cast<int64_t>(i));
  }
  using Running = std::pair<double, int64_t>;  // end, node
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  double now_ns = 0;
  auto finish = [&](int64_t node) {
    for (int64_t next : nodes[node].successors) {
      if (--waits_for[next] == 0) ready.push_back(next);
    }
  };
  while (!ready.empty() || !running.empty()) {
    while (!ready.empty() && static_cast<int>(running.size()) < num_threads) {
      const int64_t node = ready.front();
      ready.pop_front();
      if (durations[node] > 0) {
        running.emplace(now_ns + durations[node], node);
      } else {
        finish(node);
      }
    }
    if (running.empty()) continue;
    now_ns = running.top().first;
    const int64_t node = running.top().second;
    running.pop();
    finish(node);
  }
  return now_ns;
}

Module KernelGraph::Extract(absl::Span<const int64_t> kernels) const {
  auto module =
      std::make_unique<xla::HloModule>("kernels", module_.hlo().config());
  xla::HloCloneContext context(module.get());
  HloComputation::Builder builder("kernels");
  std::vector<HloInstruction*> outputs;
  int64_t num_parameters = 0;
  struct Alias {
    ShapeIndex output;
    int64_t parameter;
    ShapeIndex index;
  };
  std::vector<Alias> aliases;
  for (int64_t kernel : kernels) {
    const HloInstruction* original = examples_[kernel];
    std::vector<HloInstruction*> operands;
    std::vector<int64_t> parameters;  // number of each operand; -1 if none
    for (int64_t i = 0; i < original->operand_count(); ++i) {
      const HloInstruction* operand = original->operand(i);
      const int64_t first = original->operand_index(operand);
      if (first < i) {
        operands.push_back(operands[first]);
        parameters.push_back(-1);
        continue;
      }
      if (IsScalarConstant(*operand)) {
        operands.push_back(builder.AddInstruction(operand->Clone("")));
        parameters.push_back(-1);
        continue;
      }
      parameters.push_back(num_parameters);
      operands.push_back(builder.AddInstruction(
          HloInstruction::CreateParameter(num_parameters, operand->shape(),
                                          absl::StrCat("p", num_parameters))));
      ++num_parameters;
    }
    outputs.push_back(builder.AddInstruction(
        original->CloneWithNewOperands(original->shape(), operands, &context)));
    // XLA runs these in place; without the alias it would insert a copy.
    for (const auto& [operand, output] :
         xla::HloDataflowAnalysis::GetInPlaceInputOutputPairs(original)) {
      if (parameters[operand.operand_number] < 0) continue;
      ShapeIndex index = output;
      index.push_front(static_cast<int64_t>(outputs.size()) - 1);
      aliases.push_back({std::move(index), parameters[operand.operand_number],
                         operand.operand_index});
    }
  }
  builder.AddInstruction(HloInstruction::CreateTuple(outputs));
  module->AddEntryComputationWithLayouts(builder.Build());
  for (const Alias& alias : aliases) {
    // Two outputs cannot alias one operand; keep the first alias.
    xla::HloInputOutputAliasConfig& config =
        module->input_output_alias_config();
    if (config.ParameterHasAlias(alias.parameter, alias.index) ||
        config.OutputHasAlias(alias.output)) {
      continue;
    }
    (void)config.SetUpAlias(alias.output, alias.parameter, alias.index);
  }
  return Module(std::move(module));
}

absl::flat_hash_map<std::string, int64_t> OutputOfInstruction(
    const xla::HloModule& module) {
  absl::flat_hash_map<std::string, int64_t> output_of;
  const HloInstruction* root = module.entry_computation()->root_instruction();
  for (int64_t i = 0; i < root->operand_count(); ++i) {
    std::vector<const HloInstruction*> agenda = {root->operand(i)};
    while (!agenda.empty()) {
      const HloInstruction* instruction = agenda.back();
      agenda.pop_back();
      if (!output_of.try_emplace(std::string(instruction->name()), i).second) {
        continue;
      }
      agenda.insert(agenda.end(), instruction->operands().begin(),
                    instruction->operands().end());
    }
  }
  return output_of;
}

}  // namespace hloenv
