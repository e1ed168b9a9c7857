// SPDX-License-Identifier: Apache-2.0
// A convolution as a sum of products with labelled dimensions.
//
// In spatial dimension d, output position p reads input position q through tap
// t, where  q * base_dilation + pad_low = p * stride + t * window_dilation.
// The products are those of input [g, b, i, q] and kernel [g, o, i, t], summed
// over i and t to output [g, b, o, p]; g are the groups of a grouped
// convolution, of its features or of its batch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "passes/proposals/labelled.h"
#include "passes/proposals/rules.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace hloenv {

struct SpatialDimension {
  int64_t input;  // size
  int64_t output;
  int64_t taps;
  int64_t stride;
  int64_t pad_low;
  int64_t pad_high;
  int64_t window_dilation;
  int64_t base_dilation;
  bool reversed;

  // Where the padded, dilated input is read through kernel index `k`, relative
  // to the first position of the window.
  int64_t OffsetOf(int64_t k) const {
    return (reversed ? taps - 1 - k : k) * window_dilation;
  }
  // Size of the dilated input without padding.
  int64_t dilated() const { return (input - 1) * base_dilation + 1; }
};

// The position in spatial dimension d, and the index in the kernel.
inline char PositionLabel(size_t d) { return static_cast<char>('0' + d); }
inline char TapLabel(size_t d) { return static_cast<char>('x' + d); }

// One number for each spatial dimension.
using Index = std::vector<int64_t>;
// All indices below these sizes, the last dimension fastest.
std::vector<Index> IndicesBelow(const Index& sizes);

class Convolution {
 public:
  // Whether XLA may compute the form once for each of its readers, or it is in
  // a call that it does not inline: all read the same bits then.
  enum class Form { kFused, kApart };

  // None if the rules do not apply to `instruction`: another operation, more
  // than three spatial dimensions, empty or dynamic arrays, padding that
  // removes all of the input or is much larger than that, a type in which sums
  // are not exact (HasExactTypes), a result that is compared with its own
  // maximum (RuleContext) unless the form is apart, or a kernel that may
  // contain huge constants of the module. Products of those with the zeros of
  // the padding may not be finite. The order of the sums is free: XLA specifies
  // none for a convolution.
  static std::optional<Convolution> Of(const xla::HloInstruction& instruction,
                                       RuleContext& context,
                                       Form form = Form::kFused);
  // The same where the dilated input with its padding may be of any size, for
  // rules that do not make it.
  static std::optional<Convolution> OfAnyPadding(
      const xla::HloInstruction& instruction, RuleContext& context,
      Form form = Form::kFused);
  // Whether a rule may make an array of so many elements.
  bool Fits(double elements) const;

  const std::vector<SpatialDimension>& spatial() const { return spatial_; }
  int64_t groups() const { return groups_; }
  int64_t batch() const { return batch_; }    // of one group
  int64_t inputs() const { return inputs_; }  // features of one group
  int64_t outputs() const { return outputs_; }
  // Numbers of kernel indices, and of output positions.
  Index taps() const;
  Index positions() const;
  int64_t num_taps() const;
  // The labels of the taps in dimensions whose window is reversed.
  std::string ReversedTaps() const;
  int64_t num_positions() const;
  double num_elements() const;  // of the input
  const Accumulation& accumulation() const { return accumulation_; }
  const xla::HloInstruction& instruction() const { return *instruction_; }

  // The operands with labels, those of size 1 left out except for positions and
  // indices. `groups_first`: g is the outermost dimension, as in dots.
  Labelled Input(xla::HloInstruction* value, bool groups_first) const;
  Labelled Kernel(xla::HloInstruction* value, bool groups_first) const;
  // The labels of the output, in its order, without g, b and o of size 1.
  std::string OutputLabels() const;
  // The input with the padding of the convolution.
  Labelled PaddedInput(const Labelled& input) const;
  // The part of the padded input that one kernel index is multiplied with, and
  // that element of the kernel.
  Labelled InputAt(const Labelled& padded, const Index& tap) const;
  Labelled KernelAt(const Labelled& kernel, const Index& tap) const;
  // Sums the products of parts of the operands over their common labels other
  // than g: as a dot, or as a multiplication in the order of the output where
  // there is no such label, or no other.
  absl::StatusOr<Labelled> Product(Labelled input, Labelled kernel) const;
  // The same as a whole result: plus zero, where it is the sum of one term.
  absl::StatusOr<Labelled> Sum(const Labelled& input,
                               const Labelled& kernel) const;
  // The result of the convolution from an array with the labels of the output.
  xla::HloInstruction* Finish(const Labelled& output) const;

 private:
  const xla::HloInstruction* instruction_;
  std::vector<SpatialDimension> spatial_;
  bool has_batch_groups_;
  int64_t groups_;
  int64_t batch_;
  int64_t inputs_;
  int64_t outputs_;
  Accumulation accumulation_;
};

}  // namespace hloenv
