// SPDX-License-Identifier: Apache-2.0
// A module as the kernels that XLA's thunk executor runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/module.h"

namespace xla {
class HloComputation;
class HloInstruction;
}  // namespace xla

namespace hloenv {

inline constexpr double kAssumedTrips = 16;

// The kernels of a module on which XLA's pipeline has run up to copy insertion,
// after which no pass changes kernels. Loops, calls and conditionals are
// expanded to the kernels inside them; a loop with unknown trip count runs
// kAssumedTrips times, so that variants of one module are comparable.
class KernelGraph {
 public:
  explicit KernelGraph(const Module& module);

  // Distinct kernels, in the order of their first appearance.
  const std::vector<std::string>& fingerprints() const { return fingerprints_; }

  // [K] the name of one instruction of each kernel.
  std::vector<std::string> Names() const;

  // [K] the opcode of each kernel.
  std::vector<std::string> Opcodes() const;

  // [K] how often each kernel runs in one run of the module; each of n branches
  // of a conditional counts 1/n.
  std::vector<double> NumRuns() const;

  // Duration in ns of one run of the module, if kernel i takes `kernel_ns[i]`,
  // plus `graph_step_ns` in computations that ThunkExecutor runs as a dataflow
  // graph. With several threads, independent kernels of such computations run
  // at the same time, each as soon as a thread is free.
  double TotalNs(absl::Span<const double> kernel_ns, int num_threads,
                 double graph_step_ns) const;

  // A module that runs each of `kernels` once, on separate parameters; output i
  // is that of kernels[i]. Input for XLA's passes from copy insertion on.
  Module Extract(absl::Span<const int64_t> kernels) const;

 private:
  // One instruction of an expanded computation.
  struct Node {
    int64_t kernel = -1;                // -1: takes no time by itself
    std::vector<int64_t> computations;  // called computations, by index
    double runs = 1;                    // how often each of these runs
    std::vector<int64_t> successors;    // in the same computation
    int64_t num_predecessors = 0;
  };

  struct Computation {
    std::vector<Node> nodes;
    bool is_graph = false;  // else its nodes run one after the other
  };

  int64_t AddComputation(const xla::HloComputation* computation);
  Node MakeNode(const xla::HloInstruction* instruction);
  double DurationNs(int64_t computation, absl::Span<const double> kernel_ns,
                    int num_threads, double graph_step_ns,
                    std::vector<double>* known) const;

  Module module_;  // without thunk-order attributes
  std::vector<std::string> fingerprints_;
  std::vector<const xla::HloInstruction*> examples_;  // one for each kernel
  absl::flat_hash_map<std::string, int64_t> kernel_of_;
  // Callees before callers; the entry is the last.
  std::vector<Computation> computations_;
  absl::flat_hash_map<const xla::HloComputation*, int64_t> index_of_;
  absl::flat_hash_set<std::string> in_order_;  // computations, by name
};

// For a module made by `Extract`, the output that each instruction contributes
// to, by name: instructions that XLA added around a kernel count to the kernel.
absl::flat_hash_map<std::string, int64_t> OutputOfInstruction(
    const xla::HloModule& module);

}  // namespace hloenv
