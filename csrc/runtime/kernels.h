// SPDX-License-Identifier: Apache-2.0
// A module as the kernels that XLA's executor starts one by one.
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

// The kernels of a module on which all of XLA's passes have run that decide
// what a kernel is: everything before copy insertion. Loops, calls and
// conditionals are taken apart; a loop of unknown length runs kAssumedTrips
// times, so that versions of one module compare.
class KernelGraph {
 public:
  explicit KernelGraph(const Module& module);

  // Distinct kernels, in the order of their first appearance.
  const std::vector<std::string>& fingerprints() const { return fingerprints_; }

  // [K] the name of an instruction that is this kernel.
  std::vector<std::string> Names() const;

  // [K] the opcode of each kernel.
  std::vector<std::string> Opcodes() const;

  // [K] how often each kernel runs in one run of the module; each branch of a
  // conditional counts its share.
  std::vector<double> NumRuns() const;

  // Duration in ns of one run of the module, when kernel i takes
  // `kernel_ns[i]`, and `graph_step_ns` more where XLA's executor takes the
  // steps of a computation for a graph. With several threads, kernels of such
  // computations that do not depend on each other run at the same time, each
  // started as soon as a thread is free.
  double TotalNs(absl::Span<const double> kernel_ns, int num_threads,
                 double graph_step_ns) const;

  // A module that runs each of `kernels` once, on parameters of its own; output
  // i is that of kernels[i]. For XLA's passes from copy insertion on.
  Module Extract(absl::Span<const int64_t> kernels) const;

 private:
  // One instruction of a computation that is taken apart.
  struct Node {
    int64_t kernel = -1;                // -1: takes no time by itself
    std::vector<int64_t> computations;  // that it runs, by index
    double runs = 1;                    // how often each of them runs
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

  Module module_;  // without marks: how steps run is no part of a kernel
  std::vector<std::string> fingerprints_;
  std::vector<const xla::HloInstruction*> examples_;  // one for each kernel
  absl::flat_hash_map<std::string, int64_t> kernel_of_;
  // Callees before callers; the entry is the last.
  std::vector<Computation> computations_;
  absl::flat_hash_map<const xla::HloComputation*, int64_t> index_of_;
  absl::flat_hash_set<std::string> in_order_;  // computations, by name
};

// Which output of a module made by `Extract` each of its instructions serves,
// by name: what has been put around a kernel belongs to it.
absl::flat_hash_map<std::string, int64_t> OutputOfInstruction(
    const xla::HloModule& module);

}  // namespace hloenv
