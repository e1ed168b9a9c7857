// SPDX-License-Identifier: Apache-2.0
#include "passes/proposals/rules.h"

#include "backend/dot_lowering.h"
#include "support/status.h"
#include "xla/hlo/ir/hlo_clone_context.h"
#include "xla/layout_util.h"
#include "xla/service/call_graph.h"
#include "xla/service/hlo_creation_utils.h"
#include "xla/shape_util.h"

namespace hloenv {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;

namespace {
// Instructions that one search looks at.
constexpr int kMaxVisited = 1 << 14;
}  // namespace

Dependence::Dependence(const HloComputation& computation) {
  for (const HloInstruction* instruction :
       computation.MakeInstructionPostOrder()) {
    position_[instruction] = post_order_.size();
    post_order_.push_back(instruction);
  }
  visited_.resize(post_order_.size(), 0);
}

bool Dependence::Reaches(const HloInstruction& from, const HloInstruction& to) {
  ++stamp_;
  const size_t target = position_.at(&from);
  int num_visited = 0;
  std::vector<const HloInstruction*> stack = {&to};
  while (!stack.empty()) {
    const HloInstruction* top = stack.back();
    stack.pop_back();
    const size_t position = position_.at(top);
    if (position == target) return true;
    // Instructions before `from` in post order do not depend on it.
    if (position < target || visited_[position] == stamp_) continue;
    visited_[position] = stamp_;
    if (++num_visited > kMaxVisited) return true;
    stack.insert(stack.end(), top->operands().begin(), top->operands().end());
    stack.insert(stack.end(), top->control_predecessors().begin(),
                 top->control_predecessors().end());
  }
  return false;
}

bool Dependence::IsLive(const HloInstruction& instruction) {
  if (is_live_.empty()) {
    is_live_.assign(post_order_.size(), 0);
    for (size_t i = post_order_.size(); i-- > 0;) {
      const HloInstruction& each = *post_order_[i];
      if (!each.IsRoot() && !each.HasSideEffect() && is_live_[i] == 0) continue;
      is_live_[i] = 1;
      for (const HloInstruction* operand : each.operands()) {
        is_live_[position_.at(operand)] = 1;
      }
      for (const HloInstruction* before : each.control_predecessors()) {
        is_live_[position_.at(before)] = 1;
      }
    }
  }
  return is_live_[position_.at(&instruction)] != 0;
}

const std::vector<const HloInstruction*>& Dependence::UsersInOrder(
    const HloInstruction& instruction) {
  const auto [found, is_new] = users_.try_emplace(&instruction);
  std::vector<const HloInstruction*>& users = found->second;
  if (!is_new) return users;
  users.assign(instruction.users().begin(), instruction.users().end());
  std::sort(users.begin(), users.end(),
            [this](const HloInstruction* a, const HloInstruction* b) {
              return position_.at(a) < position_.at(b);
            });
  return users;
}

absl::Span<const HloInstruction* const> Dependence::UsersBefore(
    const HloInstruction& instruction, const HloInstruction& user,
    size_t count) {
  const std::vector<const HloInstruction*>& users = UsersInOrder(instruction);
  const auto at =
      std::lower_bound(users.begin(), users.end(), position_.at(&user),
                       [this](const HloInstruction* each, size_t position) {
                         return position_.at(each) < position;
                       }) -
      users.begin();
  const size_t end = static_cast<size_t>(at);
  const size_t begin = end - std::min(end, count);
  return absl::MakeConstSpan(users).subspan(begin, end - begin);
}

namespace {

class RuleCandidatePass : public CandidatePass {
 public:
  RuleCandidatePass(absl::string_view name, std::vector<const Rule*> rules,
                    std::function<bool(const HloInstruction&)> is_meant)
      : name_(name), rules_(std::move(rules)), is_meant_(std::move(is_meant)) {}

  absl::string_view name() const override { return name_; }

  absl::StatusOr<std::vector<Proposal>> Propose(
      const HloModule& module) const override {
    LazyFacts facts(module);
    std::vector<Proposal> proposals;
    for (const HloComputation* computation : RewritableComputations(module)) {
      RuleContext context(*computation, &facts);
      for (const HloInstruction* instruction : context.post_order()) {
        if (is_meant_ != nullptr && !is_meant_(*instruction)) continue;
        for (const Rule* rule : rules_) {
          rule->propose(*instruction, context, proposals);
        }
      }
    }
    return proposals;
  }

 private:
  const std::string name_;
  const std::vector<const Rule*> rules_;
  const std::function<bool(const HloInstruction&)> is_meant_;
};

}  // namespace

PassInfo RulePass(std::string name, std::string class_name, std::string summary,
                  absl::Span<const Rule> rules,
                  std::unique_ptr<CandidatePass> (*make)(const Options&)) {
  PassInfo pass;
  pass.name = std::move(name);
  pass.class_name = std::move(class_name);
  pass.summary = std::move(summary);
  for (const Rule& rule : rules) {
    pass.options.push_back(
        {std::string(rule.name), true, std::string(rule.doc)});
  }
  std::sort(
      pass.options.begin(), pass.options.end(),
      [](const OptionInfo& a, const OptionInfo& b) { return a.name < b.name; });
  pass.make = nullptr;
  pass.make_candidate = make;
  return pass;
}

std::unique_ptr<CandidatePass> MakeRulePass(
    absl::string_view name, absl::Span<const Rule> rules,
    const Options& options,
    std::function<bool(const HloInstruction&)> is_meant) {
  std::vector<const Rule*> enabled;
  for (const Rule& rule : rules) {
    if (options.Bool(rule.name)) enabled.push_back(&rule);
  }
  return std::make_unique<RuleCandidatePass>(name, std::move(enabled),
                                             std::move(is_meant));
}

std::vector<const HloComputation*> RewritableComputations(
    const HloModule& module) {
  std::unique_ptr<xla::CallGraph> call_graph = xla::CallGraph::Build(&module);
  std::vector<const HloComputation*> result;
  for (const HloComputation* computation : module.computations()) {
    // What rules add is of the main thread.
    if (!computation->IsAsyncComputation() && computation->IsMainThread() &&
        (computation->IsEntryComputation() ||
         call_graph->GetNode(computation).context() ==
             xla::CallContext::kControlFlow)) {
      result.push_back(computation);
    }
  }
  return result;
}

bool FitsBeside(double elements, double others) {
  constexpr double kAlwaysFits = 1 << 25;
  constexpr double kFactor = 4;
  return elements <= std::max(kAlwaysFits, kFactor * others);
}

bool IsReplaceable(const HloInstruction& instruction) {
  const xla::Shape& shape = instruction.shape();
  return shape.IsArray() && shape.is_static() && shape.has_layout() &&
         shape.layout().tiles().empty() && shape.layout().memory_space() == 0 &&
         !instruction.HasSideEffect() &&
         !instruction.HasControlDependencies() && !instruction.has_sharding();
}

bool IsPlain(const HloInstruction& instruction) {
  return IsReplaceable(instruction) &&
         xla::LayoutUtil::IsMonotonicWithDim0Major(
             instruction.shape().layout());
}

std::vector<const HloInstruction*> LiveElementsOf(
    const HloInstruction& instruction, RuleContext& context) {
  if (instruction.shape().IsArray()) return {&instruction};
  if (instruction.IsRoot()) return {};
  std::vector<const HloInstruction*> users = context.UsersInOrder(instruction);
  users.erase(std::remove_if(users.begin(), users.end(),
                             [&context](const HloInstruction* each) {
                               return !context.IsLive(*each);
                             }),
              users.end());
  return users;
}

absl::StatusOr<HloInstruction*> SliceAlong(HloInstruction* value,
                                           int64_t dimension, int64_t start,
                                           int64_t limit) {
  const auto rank = static_cast<size_t>(RankOf(value->shape()));
  std::vector<int64_t> starts(rank, 0);
  std::vector<int64_t> limits(value->shape().dimensions().begin(),
                              value->shape().dimensions().end());
  starts[dimension] = start;
  limits[dimension] = limit;
  return xla::MakeSliceHlo(value, starts, limits,
                           std::vector<int64_t>(rank, 1));
}

HloInstruction* CloneBeside(const HloInstruction& original,
                            const xla::Shape& shape,
                            absl::Span<HloInstruction* const> operands) {
  HloComputation* computation = operands.front()->parent();
  xla::HloCloneContext context(computation->parent());
  std::vector<const HloInstruction*> callers = {&original};
  if (original.opcode() == xla::HloOpcode::kFusion) {
    callers.assign(original.fused_instructions().begin(),
                   original.fused_instructions().end());
  }
  for (const HloInstruction* caller : callers) {
    for (const HloComputation* callee : caller->called_computations()) {
      HloComputation* copy =
          computation->parent()->GetComputationWithName(callee->name());
      if (copy != nullptr && *copy == *callee) {
        context.MapComputation(callee, copy);
      }
    }
  }
  return computation->AddInstruction(
      original.CloneWithNewOperands(shape, operands, &context));
}

absl::StatusOr<HloComputation*> CalledBeside(
    const HloInstruction& original,
    absl::Span<HloInstruction* const> operands) {
  HloInstruction* clone = CloneBeside(original, original.shape(), operands);
  HloComputation* called = clone->to_apply();
  HLOENV_RETURN_IF_ERROR(clone->parent()->RemoveInstruction(clone));
  return called;
}

void ProposeMany(const Rule& rule, std::vector<const HloInstruction*> originals,
                 std::vector<const HloInstruction*> reads, BuildManyFn build,
                 std::vector<Proposal>& proposals) {
  Proposal proposal;
  proposal.rule = std::string(rule.name);
  proposal.originals = originals;
  for (const HloInstruction* read : reads) {
    if (std::find(proposal.reads.begin(), proposal.reads.end(), read) ==
        proposal.reads.end()) {
      proposal.reads.push_back(read);
    }
  }
  proposal.build =
      [originals = std::move(originals), reads = std::move(reads),
       build = std::move(build)](
          ImageOf image) -> absl::StatusOr<std::vector<HloInstruction*>> {
    std::vector<HloInstruction*> images;
    for (const HloInstruction* read : reads) images.push_back(image(read));
    HLOENV_ASSIGN_OR_RETURN(std::vector<HloInstruction*> results,
                            build(images));
    for (size_t i = 0; i < results.size(); ++i) {
      // XLA's builders copy the layout of an operand, which before layout
      // assignment may differ from the original's.
      const bool is_read =
          std::find(images.begin(), images.end(), results[i]) != images.end();
      if (!is_read && xla::ShapeUtil::Compatible(results[i]->shape(),
                                                 originals[i]->shape())) {
        *results[i]->mutable_shape() = originals[i]->shape();
      }
      if (results[i]->shape() != originals[i]->shape()) {
        return Error(kPassError,
                     absl::StrCat("the replacement of '", originals[i]->name(),
                                  "' has another shape, ",
                                  results[i]->shape().ToString(true)));
      }
      if (is_read) continue;  // it is of the module
      // Copy the attributes of the original, except its dot lowering, which
      // depends on its shapes.
      const xla::FrontendAttributes own = results[i]->frontend_attributes();
      originals[i]->SetupDerivedInstruction(results[i]);
      ClearMark(results[i]);
      for (const auto& [key, value] : own.map()) {
        results[i]->set_frontend_attribute(key, value);
      }
    }
    return results;
  };
  proposals.push_back(std::move(proposal));
}

void Propose(const Rule& rule, const HloInstruction& original,
             std::vector<const HloInstruction*> reads, BuildFn build,
             std::vector<Proposal>& proposals) {
  ProposeMany(
      rule, {&original}, std::move(reads),
      [build = std::move(build)](absl::Span<HloInstruction* const> images)
          -> absl::StatusOr<std::vector<HloInstruction*>> {
        HLOENV_ASSIGN_OR_RETURN(HloInstruction * result, build(images));
        return std::vector<HloInstruction*>{result};
      },
      proposals);
}

}  // namespace hloenv
