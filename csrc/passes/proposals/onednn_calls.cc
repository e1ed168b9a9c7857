// SPDX-License-Identifier: Apache-2.0
// Proposes calls of oneDNN for convolutions and dots.
#include "backend/onednn_calls.h"

#include "passes/proposals/convolution.h"
#include "passes/proposals/general_passes.h"
#include "passes/proposals/rules.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using Images = absl::Span<HloInstruction* const>;

const Rule& ConvolutionRule();
void ProposeConvolution(const HloInstruction& root, RuleContext& context,
                        std::vector<Proposal>& proposals) {
  if (!IsPlain(root) || !MayConvolveByOneDnn(root) ||
      !Convolution::Of(root, context).has_value()) {
    return;
  }
  Propose(
      ConvolutionRule(), root, {root.operand(0), root.operand(1)},
      [&root](Images x) -> absl::StatusOr<HloInstruction*> {
        return OneDnnConvolution(root, x.front(),
                                 ReversedKernel(root, x.back()));
      },
      proposals);
}
const Rule& ConvolutionRule() {
  static constexpr Rule rule = {
      "convolution",
      "Calls oneDNN's convolution, of f32 without dilation of the input, "
      "groups of the batch or negative padding. Each element is the same sum, "
      "added in another order, without the products with padding: those with "
      "an infinite number or a NaN of the kernel are NaN in XLA's own code.",
      &ProposeConvolution};
  return rule;
}

const Rule& MatmulRule();
void ProposeMatmul(const HloInstruction& root, RuleContext&,
                   std::vector<Proposal>& proposals) {
  if (!IsPlain(root)) return;
  const std::optional<OneDnnProduct> product = OneDnnProduct::Of(root);
  if (!product.has_value()) return;
  Propose(
      MatmulRule(), root, {product->lhs.array, product->rhs.array},
      [product = *product, &root](Images x) -> absl::StatusOr<HloInstruction*> {
        return product.Build(root, x.front(), x.back());
      },
      proposals);
}
const Rule& MatmulRule() {
  static constexpr Rule rule = {
      "matmul",
      "Calls oneDNN's product of matrices, or of batches of them, of f32, and "
      "of bf16 where the processor multiplies that. Each element is the same "
      "sum, added in another order.",
      &ProposeMatmul};
  return rule;
}

absl::Span<const Rule> OneDnnCallsRules() {
  static const auto* rules =
      new std::vector<Rule>{ConvolutionRule(), MatmulRule()};
  return *rules;
}

}  // namespace

PassInfo OneDnnCallsPass() {
  return RulePass(
      "onednn-calls", "hloenv::OneDnnCalls",
      "Proposes, for each convolution and each product of matrices, a call of "
      "oneDNN, which the backends of the wheel and of jaxlib run. Nothing that "
      "XLA's passes do to convolutions and dots applies to a call.",
      OneDnnCallsRules(), [](const Options& options) {
        return MakeRulePass("onednn-calls", OneDnnCallsRules(), options);
      });
}

}  // namespace hloenv
