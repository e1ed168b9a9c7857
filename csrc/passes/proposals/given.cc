// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/given.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/proposals/rules.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace hloenv {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;
using xla::Shape;

// Adds the instructions of `computation` beside `arguments` and returns its
// result, or the elements of its result if `num_results` is above 1.
std::vector<HloInstruction*> AddBody(
    const HloComputation& computation,
    absl::Span<HloInstruction* const> arguments, size_t num_results) {
  HloComputation* target = arguments.front()->parent();
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> copies;
  const HloInstruction* root = computation.root_instruction();
  for (const HloInstruction* body : computation.MakeInstructionPostOrder()) {
    if (body->opcode() == HloOpcode::kParameter) {
      copies[body] = arguments[body->parameter_number()];
      continue;
    }
    if (body == root && num_results > 1) continue;
    std::vector<HloInstruction*> operands;
    for (const HloInstruction* operand : body->operands()) {
      operands.push_back(copies.at(operand));
    }
    copies[body] = operands.empty()
                       ? target->AddInstruction(body->Clone(/*suffix=*/""))
                       : CloneBeside(*body, body->shape(), operands);
  }
  if (num_results == 1) return {copies.at(root)};
  std::vector<HloInstruction*> results;
  for (const HloInstruction* element : root->operands()) {
    results.push_back(copies.at(element));
  }
  return results;
}

class GivenPass : public CandidatePass {
 public:
  GivenPass(std::string name, Module library,
            std::vector<GivenProposal> proposals)
      : name_(std::move(name)),
        library_(std::move(library)),
        proposals_(std::move(proposals)) {}

  absl::string_view name() const override { return name_; }

  absl::StatusOr<std::vector<Proposal>> Propose(
      const HloModule& module) const override {
    absl::flat_hash_map<absl::string_view, const HloInstruction*> by_name;
    for (const HloComputation* computation : module.computations()) {
      for (const HloInstruction* instruction : computation->instructions()) {
        by_name[instruction->name()] = instruction;
      }
    }
    absl::flat_hash_map<absl::string_view, const HloComputation*> bodies;
    for (const HloComputation* body : library_.hlo().computations()) {
      bodies[body->name()] = body;
    }
    const std::vector<const HloComputation*> list =
        RewritableComputations(module);
    const absl::flat_hash_set<const HloComputation*> rewritable(list.begin(),
                                                                list.end());
    LazyFacts facts(module);
    std::vector<Proposal> result;
    for (const GivenProposal& given : proposals_) {
      std::vector<const HloInstruction*> values;
      for (const auto* names : {&given.originals, &given.reads}) {
        if (names->empty()) return Wrong(given, "has no originals or no reads");
        for (const std::string& name : *names) {
          const auto it = by_name.find(name);
          if (it == by_name.end()) {
            return Wrong(given, absl::StrCat("names '", name,
                                             "', which the module lacks"));
          }
          values.push_back(it->second);
        }
      }
      const auto body = bodies.find(given.computation);
      if (body == bodies.end()) {
        return Wrong(given, absl::StrCat("has no computation '",
                                         given.computation, "'"));
      }
      HLOENV_RETURN_IF_ERROR(Check(given, values, *body->second));
      if (!rewritable.contains(values.front()->parent()) ||
          !HasLayouts(values, given.originals.size(), *body->second) ||
          (given.needs_moderate &&
           HasLarge(absl::MakeSpan(values).subspan(given.originals.size()),
                    facts))) {
        continue;
      }
      Add(given, values, body->second, &result);
    }
    return result;
  }

 private:
  absl::Status Wrong(const GivenProposal& given, absl::string_view what) const {
    return Error(
        kPassError,
        absl::StrCat("rule '", given.rule, "' of pass '", name_, "' at '",
                     given.originals.empty() ? "" : given.originals[0], "' ",
                     what));
  }

  // The shapes of the results, then those of the parameters.
  static std::vector<const Shape*> ShapesOf(const HloComputation& body,
                                            size_t num_originals) {
    std::vector<const Shape*> shapes;
    const HloInstruction* root = body.root_instruction();
    if (num_originals == 1) {
      shapes.push_back(&root->shape());
    } else if (root->opcode() == HloOpcode::kTuple) {
      for (const HloInstruction* each : root->operands()) {
        shapes.push_back(&each->shape());
      }
    }
    for (int64_t i = 0; i < body.num_parameters(); ++i) {
      shapes.push_back(&body.parameter_instruction(i)->shape());
    }
    return shapes;
  }

  // `values`: the originals, then the reads.
  absl::Status Check(const GivenProposal& given,
                     absl::Span<const HloInstruction* const> values,
                     const HloComputation& body) const {
    const std::vector<const Shape*> shapes =
        ShapesOf(body, given.originals.size());
    if (shapes.size() != values.size() ||
        body.num_parameters() != static_cast<int64_t>(given.reads.size())) {
      return Wrong(
          given,
          absl::StrCat("has ", given.originals.size(), " originals and ",
                       given.reads.size(), " reads, which '", given.computation,
                       "' does not have as results and parameters"));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i]->parent() != values.front()->parent()) {
        return Wrong(given, absl::StrCat("uses '", values[i]->name(),
                                         "' of another computation"));
      }
      if (!xla::ShapeUtil::Compatible(values[i]->shape(), *shapes[i])) {
        return Wrong(given,
                     absl::StrCat("gives ", shapes[i]->ToString(), " for '",
                                  values[i]->name(), "', which is ",
                                  values[i]->shape().ToString()));
      }
    }
    return absl::OkStatus();
  }

  static bool HasLayouts(absl::Span<const HloInstruction* const> values,
                         size_t num_originals, const HloComputation& body) {
    const std::vector<const Shape*> shapes = ShapesOf(body, num_originals);
    for (size_t i = 0; i < values.size(); ++i) {
      if (i < num_originals && !IsReplaceable(*values[i])) return false;
      if (!xla::ShapeUtil::Equal(values[i]->shape(), *shapes[i])) return false;
    }
    return true;
  }

  static bool HasLarge(absl::Span<const HloInstruction* const> reads,
                       LazyFacts& facts) {
    return absl::c_any_of(reads, [&](const HloInstruction* each) {
      const xla::PrimitiveType type = each->shape().element_type();
      return (xla::primitive_util::IsFloatingPointType(type) ||
              xla::primitive_util::IsComplexType(type)) &&
             facts.ExtremesOf(*each).large();
    });
  }

  void Add(const GivenProposal& given,
           absl::Span<const HloInstruction* const> values,
           const HloComputation* body, std::vector<Proposal>* result) const {
    const size_t num_originals = given.originals.size();
    ProposeMany(
        Rule{given.rule, /*doc=*/"", /*propose=*/nullptr},
        {values.begin(), values.begin() + num_originals},
        {values.begin() + num_originals, values.end()},
        // The proposals outlive the pass, but not the library.
        [library = library_, body,
         num_originals](absl::Span<HloInstruction* const> arguments)
            -> absl::StatusOr<std::vector<HloInstruction*>> {
          return AddBody(*body, arguments, num_originals);
        },
        *result);
  }

  const std::string name_;
  const Module library_;
  const std::vector<GivenProposal> proposals_;
};

}  // namespace

std::unique_ptr<CandidatePass> MakeGivenPass(
    std::string name, Module library, std::vector<GivenProposal> proposals) {
  return std::make_unique<GivenPass>(std::move(name), std::move(library),
                                     std::move(proposals));
}

}  // namespace hloenv
