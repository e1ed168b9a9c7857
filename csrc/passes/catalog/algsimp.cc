// SPDX-License-Identifier: Apache-2.0
// The algebraic simplifier and its options.
#include "hlo/config.h"
#include "passes/catalog/catalog.h"
#include "xla/hlo/transforms/simplifiers/algebraic_simplifier.h"

namespace hloenv {

namespace {

using Algsimp = xla::AlgebraicSimplifierOptions;

struct BoolFlag {
  const char* name;
  bool (Algsimp::*get)() const;
  void (Algsimp::*set)(bool);
  const char* doc;
};

constexpr BoolFlag kBoolFlags[] = {
    {"disable_dynamic_slice_to_slice_conversion",
     &Algsimp::disable_dynamic_slice_to_slice_conversion,
     &Algsimp::set_disable_dynamic_slice_to_slice_conversion,
     "Keep a dynamic-slice with constant indices instead of making it a "
     "slice."},
    {"enable_broadcast_degenerate_dimension",
     &Algsimp::enable_broadcast_degenerate_dimension,
     &Algsimp::set_enable_broadcast_degenerate_dimension,
     "Move dimensions of size one out of broadcasts into a reshape."},
    {"enable_conditional_simplification",
     &Algsimp::enable_conditional_simplification,
     &Algsimp::set_enable_conditional_simplification,
     "Simplify conditionals too, which simplify-conditional does otherwise."},
    {"enable_conv_add_multiply_reorder",
     &Algsimp::enable_conv_add_multiply_reorder,
     &Algsimp::set_enable_conv_add_multiply_reorder,
     "Move a multiplication before the convolution and addition that "
     "produce its operand; rounding changes."},
    {"enable_conv_operand_swap", &Algsimp::enable_conv_operand_swap,
     &Algsimp::set_enable_conv_operand_swap,
     "Swap the operands of a convolution where that is cheaper."},
    {"enable_conv_simplification", &Algsimp::enable_conv_simplification,
     &Algsimp::set_enable_conv_simplification,
     "Write convolutions with simpler operations, such as dots, and fold pads "
     "and reversals into them."},
    {"enable_dot_strength_reduction", &Algsimp::enable_dot_strength_reduction,
     &Algsimp::set_enable_dot_strength_reduction,
     "Write matrix-vector dots as multiply and reduce."},
    {"enable_dot_to_multiply_rewrite", &Algsimp::enable_dot_to_multiply_rewrite,
     &Algsimp::set_enable_dot_to_multiply_rewrite,
     "Write a dot that is an outer product as a multiply of broadcasts."},
    {"enable_fast_math", &Algsimp::enable_fast_math,
     &Algsimp::set_enable_fast_math,
     "Assume that floats are finite, so that x - x becomes 0."},
    {"enable_floats_are_real", &Algsimp::enable_floats_are_real,
     &Algsimp::set_enable_floats_are_real,
     "Treat floats as real numbers: rounding, infinities and NaN may differ "
     "from the original's."},
    {"enable_move_dot_param_to_rhs", &Algsimp::enable_move_dot_param_to_rhs,
     &Algsimp::set_enable_move_dot_param_to_rhs,
     "Swap the operands of a dot so that a parameter is the right one."},
    {"enable_negative_padding_replacement",
     &Algsimp::enable_negative_padding_replacement,
     &Algsimp::set_enable_negative_padding_replacement,
     "Write a pad with negative padding as a pad and a slice."},
    {"enable_onednn_support", &Algsimp::enable_onednn_support,
     &Algsimp::set_enable_onednn_support,
     "Keep the forms that oneDNN's custom calls match."},
    {"enable_reduce_of_reshape", &Algsimp::enable_reduce_of_reshape,
     &Algsimp::set_enable_reduce_of_reshape,
     "Merge a reshape into the reduce that reads it."},
    {"enable_remove_no_op_reduce_precision",
     &Algsimp::enable_remove_no_op_reduce_precision,
     &Algsimp::set_enable_remove_no_op_reduce_precision,
     "Remove a reduce-precision that keeps its type's precision."},
    {"enable_scalar_multiply_reduction",
     &Algsimp::enable_scalar_multiply_reduction,
     &Algsimp::set_enable_scalar_multiply_reduction,
     "Move a multiplication by a constant to the smallest operand or output "
     "of a convolution; rounding changes."},
    {"enable_sink_broadcast", &Algsimp::enable_sink_broadcast,
     &Algsimp::set_enable_sink_broadcast,
     "Move broadcasts behind the elementwise operations that read them."},
    {"enable_unconditional_reduce_of_concat_replacement",
     &Algsimp::enable_unconditional_reduce_of_concat_replacement,
     &Algsimp::set_enable_unconditional_reduce_of_concat_replacement,
     "Write the reduce of a concatenate as reduces of its parts, also where "
     "the parts have different shapes."},
    {"enable_window_reduce_to_reduce_replacement",
     &Algsimp::enable_window_reduce_to_reduce_replacement,
     &Algsimp::set_enable_window_reduce_to_reduce_replacement,
     "Write a reduce-window whose windows do not overlap as a reduce."},
    {"executing_on_cpu", &Algsimp::executing_on_cpu,
     &Algsimp::set_executing_on_cpu,
     "Apply the rules for modules that run on a CPU."},
    {"is_layout_sensitive", &Algsimp::is_layout_sensitive,
     &Algsimp::set_is_layout_sensitive,
     "Keep every layout; set it once layouts have been assigned."},
    {"minmax_propagate_nan", &Algsimp::minmax_propagate_nan,
     &Algsimp::set_minmax_propagate_nan,
     "Assume that min(x, NaN) is NaN. The default is the negation of the "
     "flag xla_cpu_enable_fast_min_max."},
    {"raise_slice_and_reduce_through_dot",
     &Algsimp::raise_slice_and_reduce_through_dot,
     &Algsimp::set_raise_slice_and_reduce_through_dot,
     "Apply a slice or a reduce of a dot's result to its operands instead."},
    {"rewrite_no_op_bitcast_convert_to_bitcast",
     &Algsimp::rewrite_no_op_bitcast_convert_to_bitcast,
     &Algsimp::set_rewrite_no_op_bitcast_convert_to_bitcast,
     "Write a bitcast-convert that moves no data as a bitcast."},
    {"rewrite_reshape_transpose_as_slice_concatenate",
     &Algsimp::rewrite_reshape_transpose_as_slice_concatenate,
     &Algsimp::set_rewrite_reshape_transpose_as_slice_concatenate,
     "Write a reshape of a transpose of a reshape as slices and a "
     "concatenate where that is the same."},
    {"run_to_fixed_point", &Algsimp::run_to_fixed_point,
     &Algsimp::set_run_to_fixed_point,
     "Visit each computation again until nothing changes (at most 50 times) "
     "instead of once."},
    {"supports_non_canonical_dots", &Algsimp::supports_non_canonical_dots,
     &Algsimp::set_supports_non_canonical_dots,
     "Allow dots that dot_decomposer would still rewrite."},
    {"unconditionally_simplify_reduce_of_transpose_or_reshape",
     &Algsimp::unconditionally_simplify_reduce_of_transpose_or_reshape,
     &Algsimp::set_unconditionally_simplify_reduce_of_transpose_or_reshape,
     "Merge a transpose or reshape into a reduce even when it has other "
     "users."},
    {"use_associative_reordering", &Algsimp::use_associative_reordering,
     &Algsimp::set_use_associative_reordering,
     "Change the order of chained dots where that saves operations; rounding "
     "changes. For modules whose dots are all products of two matrices."},
    {"use_convert_constant_folding", &Algsimp::use_convert_constant_folding,
     &Algsimp::set_use_convert_constant_folding,
     "Fold the convert of a constant."},
};

struct FloatFlag {
  const char* name;
  double (Algsimp::*get)() const;
  void (Algsimp::*set)(double);
  const char* doc;
};

constexpr FloatFlag kFloatFlags[] = {
    {"associative_reordering_threshold",
     &Algsimp::associative_reordering_threshold,
     &Algsimp::set_associative_reordering_threshold,
     "How many times fewer operations a new order of dots must need "
     "(use_associative_reordering)."},
    {"raise_slice_and_reduce_through_dot_threshold",
     &Algsimp::raise_slice_and_reduce_through_dot_threshold,
     &Algsimp::set_raise_slice_and_reduce_through_dot_threshold,
     "How many times fewer operations the smaller dot must need "
     "(raise_slice_and_reduce_through_dot)."},
};

constexpr char kGatherSize[] = "very_small_gather_size";
constexpr char kBatchnormTarget[] = "cudnn_batchnorm_forward_training_metadata";

// A dot of two matrices along one dimension.
bool IsMatrixProduct(const xla::HloInstruction& dot) {
  const xla::DotDimensionNumbers& numbers = dot.dot_dimension_numbers();
  return numbers.lhs_batch_dimensions().empty() &&
         numbers.lhs_contracting_dimensions_size() == 1 &&
         dot.operand(0)->shape().dimensions().size() == 2 &&
         dot.operand(1)->shape().dimensions().size() == 2;
}

// Workaround for an XLA bug: use_associative_reordering computes wrong
// dimension numbers for other dots and then fails a CHECK.
class CheckedReordering : public xla::AlgebraicSimplifier {
 public:
  using xla::AlgebraicSimplifier::AlgebraicSimplifier;

 protected:
  absl::StatusOr<bool> RunImpl(
      xla::HloModule* module,
      const absl::flat_hash_set<absl::string_view>& threads) override {
    for (const xla::HloComputation* computation : module->computations()) {
      for (const xla::HloInstruction* instruction :
           computation->instructions()) {
        if (instruction->opcode() == xla::HloOpcode::kDot &&
            !IsMatrixProduct(*instruction)) {
          return absl::FailedPreconditionError(absl::StrCat(
              "use_associative_reordering supports only dots of two matrices, "
              "and '",
              instruction->name(), "' is not one; turn the option off"));
        }
      }
    }
    return xla::AlgebraicSimplifier::RunImpl(module, threads);
  }
};

std::unique_ptr<xla::HloPassInterface> Make(const Options& options) {
  Algsimp result;
  for (const BoolFlag& flag : kBoolFlags) {
    (result.*flag.set)(options.Bool(flag.name));
  }
  for (const FloatFlag& flag : kFloatFlags) {
    (result.*flag.set)(options.Float(flag.name));
  }
  result.set_very_small_gather_size(options.Int(kGatherSize));
  result.set_cudnn_batchnorm_forward_training_metadata(
      options.String(kBatchnormTarget));
  if (result.use_associative_reordering()) {
    return std::make_unique<CheckedReordering>(result);
  }
  return std::make_unique<xla::AlgebraicSimplifier>(result);
}

// The options that XLA's CPU compiler sets.
Algsimp CpuCompilerOptions() {
  Algsimp options;
  options.set_enable_dot_strength_reduction(false);
  options.set_executing_on_cpu(true);
  options.set_rewrite_no_op_bitcast_convert_to_bitcast(true);
  options.set_supports_non_canonical_dots(false);
  const absl::StatusOr<xla::HloModuleConfig> config = DefaultModuleConfig();
  // Wrong flags may be mended before the next compile, which reads them again.
  options.set_minmax_propagate_nan(
      !(config.ok() && config->debug_options().xla_cpu_enable_fast_min_max()));
  return options;
}

}  // namespace

PassInfo AlgebraicSimplifierPass() {
  const Algsimp defaults = CpuCompilerOptions();
  PassInfo pass;
  pass.name = "algsimp";
  pass.class_name = "AlgebraicSimplifier";
  pass.summary =
      "Simplifies arithmetic, data movement, dots, convolutions and "
      "reductions by local rules. Defaults are those of XLA's CPU compiler.";
  for (const BoolFlag& flag : kBoolFlags) {
    pass.options.push_back({flag.name, (defaults.*flag.get)(), flag.doc});
  }
  for (const FloatFlag& flag : kFloatFlags) {
    pass.options.push_back({flag.name, (defaults.*flag.get)(), flag.doc});
  }
  pass.options.push_back(
      {kGatherSize, defaults.very_small_gather_size(),
       "Rewrite gathers from an operand of at most this many elements as "
       "selects.",
       /*allowed=*/{}, /*minimum=*/0});
  pass.options.push_back(
      {kBatchnormTarget,
       defaults.get_cudnn_batchnorm_forward_training_metadata(),
       "Target of the custom call whose third output is known to be "
       "positive; empty for none."});
  std::sort(
      pass.options.begin(), pass.options.end(),
      [](const OptionInfo& a, const OptionInfo& b) { return a.name < b.name; });
  pass.make = &Make;
  return pass;
}

}  // namespace hloenv
