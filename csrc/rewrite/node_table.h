// SPDX-License-Identifier: Apache-2.0
// A common numbering of the instructions of a module and of those that rewrites
// would add to it.
//
//   module                              new in the shadow of algsimp
//   0  p = f32[] parameter(0)           3  half = f32[] constant(0.5)
//   1  two = f32[] constant(2)          4  m = f32[] multiply(p, half)
//   2  ROOT d = f32[] divide(p, two)
//
// Nodes below num_originals() are instruction numbers of the module. New nodes
// follow, source by source, each after its operands, so that one ascending pass
// over them builds them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace xla {
class HloInstruction;
}

namespace hloenv {

class RewriteSource;
class ShadowSource;

class NodeTable {
 public:
  struct NewNode {
    const RewriteSource* source;
    int32_t local;  // its number within the source
  };

  NodeTable() = default;
  explicit NodeTable(int32_t num_originals) : num_originals_(num_originals) {}

  int32_t num_originals() const { return num_originals_; }
  // Originals included.
  int32_t size() const {
    return num_originals_ + static_cast<int32_t>(new_nodes_.size());
  }
  bool IsOriginal(int32_t node) const { return node < num_originals_; }
  const NewNode& at(int32_t node) const {
    return new_nodes_[node - num_originals_];
  }

  // As of its source; false for originals.
  bool ReadsDecided(int32_t node) const;
  // Nodes that a new node reads.
  std::vector<int32_t> OperandsOf(int32_t node) const;

  // Returns the number of the new node.
  int32_t Add(const RewriteSource* source, int32_t local) {
    new_nodes_.push_back({source, local});
    return size() - 1;
  }
  // Removes the nodes from number `size` on.
  void Truncate(int32_t size) { new_nodes_.resize(size - num_originals_); }

 private:
  int32_t num_originals_ = 0;
  std::vector<NewNode> new_nodes_;
};

// New nodes by a hash of opcode, shape and operands, to find equal nodes of
// different shadows (ShadowSource).
class EqualNodes {
 public:
  struct Entry {
    int32_t node;
    const ShadowSource* source;
    const xla::HloInstruction* instruction;
  };

  // With only one source, nodes are never shared.
  explicit EqualNodes(bool has_several_sources)
      : has_several_sources_(has_several_sources) {}

  bool has_several_sources() const { return has_several_sources_; }
  std::vector<Entry>& WithHash(uint64_t hash) { return entries_[hash]; }
  void Clear() { entries_.clear(); }

 private:
  bool has_several_sources_;
  absl::flat_hash_map<uint64_t, std::vector<Entry>> entries_;
};

}  // namespace hloenv
