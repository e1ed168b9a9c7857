// SPDX-License-Identifier: Apache-2.0
#include "graph/topology.h"

#include "absl/container/flat_hash_map.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// Number of nodes that are fetched into the cache ahead of their use: the
// instructions of a large module lie scattered over memory.
constexpr int64_t kOperandLookahead = 8;

// A computation on the way to its place in post order.
struct Visit {
  const HloComputation* computation;
  std::vector<HloInstruction*> order;
  size_t next = 0;
};

// Numbers computations and instructions, without recursion: nesting depth is
// the caller's to choose.
class Numbering {
 public:
  explicit Numbering(Topology* topology) : topology_(*topology) {}

  void Run(const HloComputation* entry) {
    Open(entry);
    while (!stack_.empty()) {
      Visit& visit = stack_.back();
      const HloComputation* callee = NextCallee(&visit);
      if (callee != nullptr) {
        Open(callee);
      } else {
        Close();
      }
    }
  }

  int32_t NumberOf(const HloComputation* computation) const {
    return numbers_.at(computation);
  }
  const std::vector<int64_t>& offsets() const { return offsets_; }
  // [C] one more than the largest local id in each computation.
  const std::vector<int64_t>& id_limits() const { return id_limits_; }
  int64_t num_edges() const { return num_edges_; }
  int64_t num_calls() const { return num_calls_; }

 private:
  void Open(const HloComputation* computation) {
    numbers_.emplace(computation, -1);
    stack_.push_back({computation, computation->MakeInstructionPostOrder()});
  }

  // The next computation below `visit` that has not been seen. Counts the calls
  // and edges that it passes on the way.
  const HloComputation* NextCallee(Visit* visit) {
    const std::vector<HloInstruction*>& order = visit->order;
    while (visit->next < order.size()) {
      const HloInstruction* instruction = order[visit->next];
      if (HloInstruction::MightHaveCalledComputations(instruction->opcode()) &&
          instruction->has_called_computations()) {
        for (const HloComputation* callee :
             instruction->called_computations()) {
          if (!numbers_.contains(callee)) return callee;
        }
        num_calls_ += instruction->called_computations().size();
      }
      ++visit->next;
    }
    return nullptr;
  }

  void Close() {
    Visit visit = std::move(stack_.back());
    stack_.pop_back();
    numbers_[visit.computation] =
        static_cast<int32_t>(topology_.computations.size());
    topology_.computations.push_back(visit.computation);
    offsets_.push_back(static_cast<int64_t>(topology_.nodes.size()));
    int64_t id_limit = 0;
    for (const HloInstruction* instruction : visit.order) {
      id_limit = std::max<int64_t>(id_limit, instruction->local_id() + 1);
      num_edges_ += instruction->operand_count() +
                    instruction->control_predecessors().size();
    }
    id_limits_.push_back(id_limit);
    topology_.nodes.insert(topology_.nodes.end(), visit.order.begin(),
                           visit.order.end());
  }

  Topology& topology_;
  std::vector<Visit> stack_;
  // -1 while the computation is on the stack.
  absl::flat_hash_map<const HloComputation*, int32_t> numbers_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> id_limits_;
  int64_t num_edges_ = 0;
  int64_t num_calls_ = 0;
};

// Fills the edges by target and the calls, in node order.
void FillEdges(const Numbering& numbering, Topology* topology) {
  Topology& t = *topology;
  const int64_t num_nodes = t.num_nodes();
  const int64_t num_edges = numbering.num_edges();
  t.computation = Column<int32_t>(num_nodes);
  t.in_offsets = Column<int64_t>(num_nodes + 1);
  t.edge_sources = Column<int64_t>(num_edges);
  t.edge_targets = Column<int64_t>(num_edges);
  t.operand_index = Column<int32_t>(num_edges);
  t.edge_is_control = Column<bool>(num_edges);
  t.call_offsets = Column<int64_t>(t.num_computations() + 1);
  t.call_nodes = Column<int64_t>(numbering.num_calls());
  t.call_computations = Column<int32_t>(numbering.num_calls());

  std::vector<int64_t> node_of_id;  // of the computation at hand
  int64_t edge = 0;
  int64_t call = 0;
  for (int32_t c = 0; c < t.num_computations(); ++c) {
    const int64_t begin = t.computation_offsets[c];
    const int64_t end = t.computation_offsets[c + 1];
    node_of_id.resize(
        std::max<size_t>(node_of_id.size(), numbering.id_limits()[c]));
    t.call_offsets[c] = call;
    for (int64_t node = begin; node < end; ++node) {
      if (node + kOperandLookahead < end) {
        __builtin_prefetch(t.nodes[node + kOperandLookahead]);
      }
      const HloInstruction& instruction = *t.nodes[node];
      node_of_id[instruction.local_id()] = node;
      t.computation[node] = c;
      t.in_offsets[node] = edge;
      int32_t operand_index = 0;
      for (const HloInstruction* operand : instruction.operands()) {
        t.edge_sources[edge] = node_of_id[operand->local_id()];
        t.edge_targets[edge] = node;
        t.operand_index[edge] = operand_index++;
        t.edge_is_control[edge] = false;
        ++edge;
      }
      for (const HloInstruction* before : instruction.control_predecessors()) {
        t.edge_sources[edge] = node_of_id[before->local_id()];
        t.edge_targets[edge] = node;
        t.operand_index[edge] = -1;
        t.edge_is_control[edge] = true;
        ++edge;
      }
      if (HloInstruction::MightHaveCalledComputations(instruction.opcode()) &&
          instruction.has_called_computations()) {
        for (const HloComputation* callee : instruction.called_computations()) {
          t.call_nodes[call] = node;
          t.call_computations[call] = numbering.NumberOf(callee);
          ++call;
        }
      }
    }
    t.computation_roots[c] =
        node_of_id[t.computations[c]->root_instruction()->local_id()];
    for (int64_t i = t.parameter_offsets[c]; i < t.parameter_offsets[c + 1];
         ++i) {
      const HloInstruction* parameter =
          t.computations[c]
              ->parameter_instructions()[i - t.parameter_offsets[c]];
      t.parameter_nodes[i] = node_of_id[parameter->local_id()];
    }
  }
  t.in_offsets[num_nodes] = edge;
  t.call_offsets[t.num_computations()] = call;
}

// A counting sort of the edges by source.
void FillOutEdges(Topology* topology) {
  Topology& t = *topology;
  const int64_t num_nodes = t.num_nodes();
  const int64_t num_edges = t.num_edges();
  t.out_offsets = Column<int64_t>(num_nodes + 1);
  t.out_edges = Column<int64_t>(num_edges);
  t.out_targets = Column<int64_t>(num_edges);
  t.out_offsets.Fill(0);
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    ++t.out_offsets[t.edge_sources[edge] + 1];
  }
  for (int64_t node = 0; node < num_nodes; ++node) {
    t.out_offsets[node + 1] += t.out_offsets[node];
  }
  std::vector<int64_t> next(t.out_offsets.data(),
                            t.out_offsets.data() + num_nodes);
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    const int64_t place = next[t.edge_sources[edge]]++;
    t.out_edges[place] = edge;
    t.out_targets[place] = t.edge_targets[edge];
  }
}

void FillCallers(Topology* topology) {
  Topology& t = *topology;
  t.computation_callers = Column<int64_t>(t.num_computations());
  t.computation_is_fusion = Column<bool>(t.num_computations());
  t.computation_callers.Fill(-1);
  t.computation_is_fusion.Fill(false);
  for (int64_t call = 0; call < t.call_nodes.rows(); ++call) {
    const int32_t callee = t.call_computations[call];
    const int64_t caller = t.call_nodes[call];
    if (t.computation_callers[callee] < 0)
      t.computation_callers[callee] = caller;
    if (t.nodes[caller]->opcode() == xla::HloOpcode::kFusion) {
      t.computation_is_fusion[callee] = true;
    }
  }
}

}  // namespace

Topology BuildTopology(const Module& module) {
  Topology t;
  t.nodes.reserve(module.instruction_count());
  Numbering numbering(&t);
  const HloComputation* entry = module.hlo().entry_computation();
  numbering.Run(entry);

  const int64_t num_computations = t.num_computations();
  t.computation_offsets = Column<int64_t>(num_computations + 1);
  std::copy(numbering.offsets().begin(), numbering.offsets().end(),
            t.computation_offsets.data());
  t.computation_offsets[num_computations] = t.num_nodes();
  t.computation_is_entry = Column<bool>(num_computations);
  t.computation_roots = Column<int64_t>(num_computations);
  t.parameter_offsets = Column<int64_t>(num_computations + 1);
  int64_t num_parameters = 0;
  for (int64_t c = 0; c < num_computations; ++c) {
    t.computation_is_entry[c] = t.computations[c] == entry;
    t.parameter_offsets[c] = num_parameters;
    num_parameters += t.computations[c]->num_parameters();
  }
  t.parameter_offsets[num_computations] = num_parameters;
  t.parameter_nodes = Column<int64_t>(num_parameters);

  FillEdges(numbering, &t);
  FillOutEdges(&t);
  FillCallers(&t);
  return t;
}

}  // namespace hloenv
