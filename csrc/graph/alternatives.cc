// SPDX-License-Identifier: Apache-2.0
#include "graph/alternatives.h"

#include "absl/container/flat_hash_map.h"
#include "graph/name_table.h"
#include "rewrite/alternative.h"
#include "support/status.h"

namespace hloenv {
namespace {

struct SiteNode {
  int64_t node;
  AlternativeSite info;
};

// The sites by alternative, then by node.
absl::StatusOr<std::vector<SiteNode>> SortedSites(const Graph& graph) {
  std::vector<SiteNode> sites;
  const auto& targets = graph.custom_call_targets;
  const auto target =
      std::find(targets.begin(), targets.end(), kAlternativeTarget);
  if (target == targets.end()) return sites;
  const auto target_index = static_cast<int32_t>(target - targets.begin());
  const int64_t num_nodes = graph.topology.num_nodes();
  absl::flat_hash_map<const xla::HloInstruction*, int64_t> nodes;
  for (int64_t node = 0; node < num_nodes; ++node) {
    if (graph.nodes.custom_call_target[node] == target_index) {
      nodes[graph.topology.nodes[node]] = node;
    }
  }
  for (AlternativeSite& info : FindAlternatives(graph.module.hlo())) {
    const auto node = nodes.find(info.instruction);
    if (node == nodes.end()) continue;  // nothing calls its computation
    if (info.alternative < 0 || info.alternative >= num_nodes) {
      return Error(
          kInvalidModuleError,
          absl::StrCat("alternative '", info.instruction->name(),
                       "' has index ", info.alternative, "; a module of ",
                       num_nodes, " instructions has indices from 0 to ",
                       num_nodes - 1));
    }
    sites.push_back({node->second, std::move(info)});
  }
  std::sort(sites.begin(), sites.end(),
            [](const SiteNode& a, const SiteNode& b) {
              return std::make_pair(a.info.alternative, a.node) <
                     std::make_pair(b.info.alternative, b.node);
            });
  return sites;
}

template <typename T>
Column<T> ToColumn(const std::vector<T>& values) {
  Column<T> column(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), column.data());
  return column;
}

}  // namespace

absl::Status AddAlternatives(Graph* graph) {
  HLOENV_ASSIGN_OR_RETURN(const std::vector<SiteNode> sites,
                          SortedSites(*graph));
  const Column<int32_t>& operand_count = graph->nodes.operand_count;
  const int64_t num_sites = static_cast<int64_t>(sites.size());
  const int64_t num_alternatives =
      sites.empty() ? 0 : sites.back().info.alternative + 1;
  int64_t num_operands = 0;
  for (const SiteNode& site : sites) num_operands += operand_count[site.node];

  AlternativeColumns& columns = graph->alternatives;
  columns.site_offsets = Column<int64_t>(num_alternatives + 1);
  columns.site_nodes = Column<int64_t>(num_sites);
  columns.kind = Column<int32_t>(num_alternatives);
  columns.choice_offsets = Column<int64_t>(num_alternatives + 1);
  columns.site_choice_offsets = Column<int64_t>(num_sites + 1);
  columns.site_choice_nodes = Column<int64_t>(num_operands);
  NameTable kinds(&columns.kinds);
  NameTable pass_names(&columns.pass_names);
  std::vector<int64_t> pass_offsets;
  std::vector<int32_t> passes;
  int64_t site = 0;
  int64_t operand = 0;
  for (int64_t a = 0; a < num_alternatives; ++a) {
    columns.site_offsets[a] = site;
    columns.choice_offsets[a] = static_cast<int64_t>(pass_offsets.size());
    columns.kind[a] = -1;  // an index that no site has
    const int64_t first = site;
    for (; site < num_sites && sites[site].info.alternative == a; ++site) {
      const AlternativeSite& info = sites[site].info;
      const int64_t node = sites[site].node;
      const int32_t num_choices = operand_count[node];
      if (site == first) {
        columns.kind[a] = kinds.IndexOf(info.kind);
        for (int32_t choice = 0; choice < num_choices; ++choice) {
          pass_offsets.push_back(static_cast<int64_t>(passes.size()));
          if (choice == 0 ||
              choice > static_cast<int32_t>(info.passes.size())) {
            continue;
          }
          for (const std::string& name : info.passes[choice - 1]) {
            passes.push_back(pass_names.IndexOf(name));
          }
        }
      } else if (num_choices != operand_count[sites[first].node]) {
        return Error(
            kInvalidModuleError,
            absl::StrCat("alternative ", a, " has sites of ",
                         operand_count[sites[first].node], " and ", num_choices,
                         " choices; all its sites need as many"));
      }
      graph->nodes.is_alternative[node] = true;
      columns.site_nodes[site] = node;
      columns.site_choice_offsets[site] = operand;
      const int64_t first_edge = graph->topology.in_offsets[node];
      for (int32_t i = 0; i < num_choices; ++i) {
        columns.site_choice_nodes[operand++] =
            graph->topology.edge_sources[first_edge + i];
      }
    }
  }
  columns.site_offsets[num_alternatives] = num_sites;
  columns.choice_offsets[num_alternatives] =
      static_cast<int64_t>(pass_offsets.size());
  columns.site_choice_offsets[num_sites] = operand;
  pass_offsets.push_back(static_cast<int64_t>(passes.size()));
  columns.choice_pass_offsets = ToColumn(pass_offsets);
  columns.choice_passes = ToColumn(passes);
  return absl::OkStatus();
}

}  // namespace hloenv
