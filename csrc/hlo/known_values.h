// SPDX-License-Identifier: Apache-2.0
// Values that a module determines: what it computes from constants and iotas
// alone, evaluated as by constant folding.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/value_flow.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/literal.h"

namespace hloenv {

// What is known of a value before the program runs.
struct KnownValue {
  // Whether it is the same in each run.
  bool is_fixed = false;
  // Nothing if it is not, or would take too long. A scalar stands for an array
  // of equal elements, as for a broadcast.
  std::shared_ptr<const xla::Literal> literal;

  // The literal in the shape of `value`, of which this is known.
  std::optional<xla::Literal> Whole(const xla::HloInstruction& value) const;
};

// Values of one module, each computed once. A chain of instructions of any
// length takes no stack.
class KnownValues {
 public:
  // Evaluates no array of more elements than `max_elements`, and no more in all
  // than `max_work` elements; those of reductions and calls count as often as
  // they are computed, and an operation as some more than its elements.
  KnownValues(int64_t max_elements, int64_t max_work)
      : max_elements_(max_elements), work_left_(max_work) {}

  // Of an array. The module must not change.
  KnownValue Of(const xla::HloInstruction& value);

 private:
  void FindVarying(const xla::HloModule& module);
  KnownValue Computed(const xla::HloInstruction& value);
  std::shared_ptr<const xla::Literal> Evaluated(
      const xla::HloInstruction& value);
  std::optional<int64_t> WorkOf(const xla::HloInstruction& value, int depth);
  std::optional<int64_t> WorkOf(const xla::HloComputation& called, int depth);

  SourceFinder sources_;
  const int64_t max_elements_;
  int64_t work_left_;
  // What may differ between runs: all that depends on a parameter of the entry,
  // a random number and the like.
  absl::flat_hash_set<const xla::HloInstruction*> varying_;
  bool has_varying_ = false;
  absl::flat_hash_map<const xla::HloInstruction*, KnownValue> values_;
  absl::flat_hash_set<const xla::HloInstruction*> done_;
  // Elements that one run of a computation computes.
  absl::flat_hash_map<const xla::HloComputation*, std::optional<int64_t>> work_;
};

}  // namespace hloenv
