// SPDX-License-Identifier: Apache-2.0
#include "absl/algorithm/container.h"
#include "hlo/outline/rules.h"

namespace hloenv::outline_rules {

// Whether computation `of` takes operands from `first` on, `count` of them.
static Why Takes(const Node& node, int64_t of, int64_t first, int64_t count) {
  if (static_cast<int64_t>(node.called(of).parameters.size()) != count) {
    return "its computation has other parameters";
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!SameShape(node.parameter(of, i), node.operand(first + i))) {
      return "its computation has other parameters";
    }
  }
  return nullptr;
}

static Why Gives(const Node& node, int64_t of) {
  return SameShape(node.called(of).root_shape(), node.shape())
             ? nullptr
             : "its computation has another result";
}

Why Call(const Node& node) {
  if (node.num_called() != 1) return "it has one computation";
  if (Why why = Takes(node, 0, 0, node.count())) return why;
  return Gives(node, 0);
}

Why While(const Node& node) {
  if (node.count() != 1 || node.num_called() != 2) {
    return "it has a condition and a body";
  }
  if (Why why = Takes(node, 0, 0, 1)) return why;
  if (Why why = Takes(node, 1, 0, 1)) return why;
  const OutlineShape& condition = node.called(0).root_shape();
  if (!condition.IsScalar() || condition.type != xla::PRED) {
    return "its condition is no pred";
  }
  if (!SameShape(node.operand(0), node.shape())) return "it changes the shape";
  return Gives(node, 1);
}

Why Conditional(const Node& node) {
  if (node.count() < 2 || node.num_called() + 1 != node.count()) {
    return "it has other branches";
  }
  const OutlineShape& index = node.operand(0);
  const bool is_pred = index.type == xla::PRED && node.num_called() == 2;
  if (!index.IsScalar() || !(is_pred || index.type == xla::S32)) {
    return "it branches by another type";
  }
  for (int64_t i = 0; i < node.num_called(); ++i) {
    if (Why why = Takes(node, i, i + 1, 1)) return why;
    if (Why why = Gives(node, i)) return why;
  }
  return nullptr;
}

static bool HasPart(const OutlineShape& shape, const Ints& index,
                    const OutlineShape** part) {
  *part = &shape;
  for (const int64_t i : index) {
    if (!InRange(i, static_cast<int64_t>((*part)->elements.size()))) {
      return false;
    }
    *part = &(*part)->elements[i];
  }
  return true;
}

static Why CheckAliases(const Node& node) {
  for (const OutlineAlias& alias : node.self().aliases) {
    const OutlineShape* output = nullptr;
    const OutlineShape* operand = nullptr;
    if (!InRange(alias.operand, node.count()) ||
        !HasPart(node.shape(), alias.output_index, &output) ||
        !HasPart(node.operand(alias.operand), alias.operand_index, &operand) ||
        !SameShape(*output, *operand)) {
      return "an alias names what is not there";
    }
  }
  return nullptr;
}

Why CustomCall(const Node& node) {
  if (node.num_called() > 1) return "it has computations";
  const auto& constrained = node.self().constrained_operands;
  if (!constrained.empty()) {
    if (static_cast<int64_t>(constrained.size()) != node.count()) {
      return "it constrains other operands";
    }
    for (int64_t i = 0; i < node.count(); ++i) {
      if (Why why = CheckShape(constrained[i])) return why;
      if (!SameShape(constrained[i], node.operand(i))) {
        return "it constrains other operands";
      }
    }
  }
  return CheckAliases(node);
}

Why Fusion(const Node& node) {
  if (Why why = Call(node)) return why;
  return CheckAliases(node);
}

Why AfterAll(const Node& node) {
  if (!node.shape().IsToken()) return "it gives a token";
  for (int64_t i = 0; i < node.count(); ++i) {
    if (!node.operand(i).IsToken()) return "it takes tokens";
  }
  return nullptr;
}

}  // namespace hloenv::outline_rules
