// SPDX-License-Identifier: Apache-2.0
#include "rewrite/node_table.h"

#include "rewrite/source.h"

namespace hloenv {

std::vector<int32_t> NodeTable::OperandsOf(int32_t node) const {
  const NewNode& entry = at(node);
  return entry.source->OperandsOf(entry.local);
}

bool NodeTable::ReadsDecided(int32_t node) const {
  if (IsOriginal(node)) return false;
  const NewNode& entry = at(node);
  return entry.source->ReadsDecided(entry.local);
}

}  // namespace hloenv
