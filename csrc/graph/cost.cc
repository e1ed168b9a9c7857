// SPDX-License-Identifier: Apache-2.0
#include "graph/cost.h"

#include <array>

#include "absl/container/flat_hash_map.h"
#include "graph/bytes.h"
#include "graph/shapes.h"
#include "rewrite/alternative.h"
#include "support/status.h"
#include "xla/permutation_util.h"
#include "xla/service/hlo_cost_analysis.h"

namespace hloenv {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;
using xla::ShapeUtil;

// How the cost of an opcode is found. Bytes accessed are those of all operands
// and the output but for kFree and kOwn.
enum class Rule : uint8_t {
  kXla,             // ask XLA
  kMove,            // no arithmetic
  kFlops,           // one operation for each element
  kTranscendental,  // one transcendental function for each element
  kFree,            // neither arithmetic nor memory
  kOwn,             // a case of its own in CostModel::Add
};

constexpr HloOpcode kFlopsOpcodes[] = {HloOpcode::kAbs,
                                       HloOpcode::kAdd,
                                       HloOpcode::kAnd,
                                       HloOpcode::kBitcastConvert,
                                       HloOpcode::kCeil,
                                       HloOpcode::kClamp,
                                       HloOpcode::kClz,
                                       HloOpcode::kCompare,
                                       HloOpcode::kComplex,
                                       HloOpcode::kConvert,
                                       HloOpcode::kDivide,
                                       HloOpcode::kFloor,
                                       HloOpcode::kImag,
                                       HloOpcode::kIsFinite,
                                       HloOpcode::kMaximum,
                                       HloOpcode::kMinimum,
                                       HloOpcode::kMultiply,
                                       HloOpcode::kNegate,
                                       HloOpcode::kNot,
                                       HloOpcode::kOr,
                                       HloOpcode::kPopulationCount,
                                       HloOpcode::kReal,
                                       HloOpcode::kReducePrecision,
                                       HloOpcode::kRemainder,
                                       HloOpcode::kRoundNearestAfz,
                                       HloOpcode::kRoundNearestEven,
                                       HloOpcode::kSelect,
                                       HloOpcode::kShiftLeft,
                                       HloOpcode::kShiftRightArithmetic,
                                       HloOpcode::kShiftRightLogical,
                                       HloOpcode::kSign,
                                       HloOpcode::kSubtract,
                                       HloOpcode::kXor};

constexpr HloOpcode kTranscendentalOpcodes[] = {
    HloOpcode::kAtan2, HloOpcode::kCbrt,     HloOpcode::kCos,
    HloOpcode::kExp,   HloOpcode::kExpm1,    HloOpcode::kLog,
    HloOpcode::kLog1p, HloOpcode::kLogistic, HloOpcode::kPower,
    HloOpcode::kRsqrt, HloOpcode::kSin,      HloOpcode::kSqrt,
    HloOpcode::kTan,   HloOpcode::kTanh};

constexpr HloOpcode kMoveOpcodes[] = {HloOpcode::kBroadcast,
                                      HloOpcode::kConcatenate,
                                      HloOpcode::kCopy,
                                      HloOpcode::kIota,
                                      HloOpcode::kOptimizationBarrier,
                                      HloOpcode::kPad,
                                      HloOpcode::kReshape,
                                      HloOpcode::kReverse};

constexpr HloOpcode kFreeOpcodes[] = {
    HloOpcode::kAddDependency, HloOpcode::kAfterAll,
    HloOpcode::kBitcast,       HloOpcode::kConstant,
    HloOpcode::kDomain,        HloOpcode::kGetTupleElement,
    HloOpcode::kParameter};

constexpr HloOpcode kOwnOpcodes[] = {HloOpcode::kCall,
                                     HloOpcode::kConditional,
                                     HloOpcode::kConvolution,
                                     HloOpcode::kCustomCall,
                                     HloOpcode::kDot,
                                     HloOpcode::kDynamicSlice,
                                     HloOpcode::kDynamicUpdateSlice,
                                     HloOpcode::kFusion,
                                     HloOpcode::kGather,
                                     HloOpcode::kMap,
                                     HloOpcode::kReduce,
                                     HloOpcode::kRngBitGenerator,
                                     HloOpcode::kScatter,
                                     HloOpcode::kSlice,
                                     HloOpcode::kSort,
                                     HloOpcode::kTranspose,
                                     HloOpcode::kTuple,
                                     HloOpcode::kWhile};

// An opcode that no list has is kXla.
std::array<Rule, xla::HloOpcodeCount()> MakeRules() {
  std::array<Rule, xla::HloOpcodeCount()> rules;
  rules.fill(Rule::kXla);
  const auto set = [&rules](Rule rule, absl::Span<const HloOpcode> opcodes) {
    for (HloOpcode opcode : opcodes) rules[static_cast<int>(opcode)] = rule;
  };
  set(Rule::kFlops, kFlopsOpcodes);
  set(Rule::kTranscendental, kTranscendentalOpcodes);
  set(Rule::kMove, kMoveOpcodes);
  set(Rule::kFree, kFreeOpcodes);
  set(Rule::kOwn, kOwnOpcodes);
  return rules;
}

Rule RuleOf(HloOpcode opcode) {
  static const auto* const rules =
      new std::array<Rule, xla::HloOpcodeCount()>(MakeRules());
  return (*rules)[static_cast<int>(opcode)];
}

// Whether the dimension numbers point at dimensions, which XLA's count of a
// convolution's operations assumes.
bool IsSoundConvolution(const HloInstruction& convolution) {
  const xla::ConvolutionDimensionNumbers& numbers =
      convolution.convolution_dimension_numbers();
  const Shape& input = convolution.operand(0)->shape();
  const Shape& kernel = convolution.operand(1)->shape();
  const Shape& output = convolution.shape();
  const auto have = [](const Shape& shape, const auto& dimensions) {
    return std::all_of(
        dimensions.begin(), dimensions.end(),
        [&shape](int64_t dim) { return HasDimension(shape, dim); });
  };
  const int rank = convolution.window().dimensions_size();
  return convolution.feature_group_count() > 0 &&
         convolution.batch_group_count() > 0 &&
         HasDimension(input, numbers.input_batch_dimension()) &&
         HasDimension(input, numbers.input_feature_dimension()) &&
         HasDimension(output, numbers.output_feature_dimension()) &&
         have(input, numbers.input_spatial_dimensions()) &&
         have(kernel, numbers.kernel_spatial_dimensions()) &&
         have(output, numbers.output_spatial_dimensions()) &&
         numbers.input_spatial_dimensions_size() >= rank &&
         numbers.kernel_spatial_dimensions_size() >= rank &&
         numbers.output_spatial_dimensions_size() >= rank;
}

// A transpose that moves nothing. XLA's test is fatal for other shapes.
bool IsBitcast(const HloInstruction& transpose) {
  const Shape& input = transpose.operand(0)->shape();
  const Shape& output = transpose.shape();
  const auto dimensions = transpose.dimensions();
  return input.IsArray() && output.IsArray() &&
         input.dimensions().size() == dimensions.size() &&
         output.dimensions().size() == dimensions.size() &&
         xla::IsPermutation(dimensions) && transpose.IsEffectiveBitcast();
}

// Fusions whose cost follows rules of its own.
bool IsUnusualFusion(const HloInstruction& fusion) {
  if (fusion.IsCustomFusion()) return true;
  for (const HloInstruction* parameter : fusion.fused_parameters()) {
    if (parameter->shape().IsTuple()) return true;
  }
  return false;
}

int CeilLog2(int64_t value) {
  int log = 0;
  while (log < 63 && (uint64_t{1} << log) < static_cast<uint64_t>(value)) ++log;
  return log;
}

// Sizes and element counts of one node's operands and output.
struct NodeSizes {
  const Topology& topology;
  const Column<int64_t>& sizes;
  const Column<int64_t>& element_counts;
  int64_t node;

  const HloInstruction& instruction() const { return *topology.nodes[node]; }
  double output_size() const { return static_cast<double>(sizes[node]); }
  double output_elements() const {
    return static_cast<double>(element_counts[node]);
  }
  // 0 for an operand that the instruction does not have.
  double OperandSize(int64_t operand) const {
    return HasOperand(operand)
               ? static_cast<double>(sizes[OperandNode(operand)])
               : 0;
  }
  double OperandElements(int64_t operand) const {
    return HasOperand(operand)
               ? static_cast<double>(element_counts[OperandNode(operand)])
               : 0;
  }
  bool HasOperand(int64_t operand) const {
    return operand < instruction().operand_count();
  }
  int64_t OperandNode(int64_t operand) const {
    return topology.edge_sources[topology.in_offsets[node] + operand];
  }
};

// Bytes accessed by an instruction that reads or writes parts of its operands.
double BytesOfParts(const NodeSizes& columns) {
  const HloInstruction& instruction = columns.instruction();
  switch (instruction.opcode()) {
    case HloOpcode::kSlice:
      return 2 * columns.output_size();
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kGather:
      return 2 * columns.output_size() + columns.OperandSize(1);
    case HloOpcode::kDynamicUpdateSlice:
      return 2 * columns.OperandSize(1) + columns.OperandSize(2);
    case HloOpcode::kScatter: {
      const int64_t num_arrays = (instruction.operand_count() - 1) / 2;
      double updates = 0;
      for (int64_t i = 0; i < num_arrays; ++i) {
        updates += columns.OperandSize(num_arrays + 1 + i);
      }
      return 3 * updates + columns.OperandSize(num_arrays);
    }
    default:  // a tuple is written and nothing is read
      return columns.output_size();
  }
}

// Of an instruction that calls no computation.
double FlopsOf(const NodeSizes& columns) {
  const HloInstruction& instruction = columns.instruction();
  switch (instruction.opcode()) {
    case HloOpcode::kDot: {
      double depth = 1;
      const Shape& lhs = instruction.operand(0)->shape();
      for (int64_t dim :
           instruction.dot_dimension_numbers().lhs_contracting_dimensions()) {
        depth *= static_cast<double>(DimensionOf(lhs, dim));
      }
      return 2 * depth * columns.output_elements();
    }
    case HloOpcode::kConvolution:
      if (!IsSoundConvolution(instruction)) return 0;
      return static_cast<double>(xla::HloCostAnalysis::GetConvolutionFlops(
          &instruction, instruction.operand(0)->shape(),
          instruction.operand(1)->shape(), instruction.shape()));
    case HloOpcode::kSort:
      return columns.OperandElements(0) *
             CeilLog2(columns.element_counts[columns.OperandNode(0)]);
    default:
      return 0;
  }
}

// Of a scatter: how many elements of its arrays it combines with others.
double NumUpdates(const NodeSizes& columns) {
  const int64_t num_arrays = (columns.instruction().operand_count() - 1) / 2;
  return columns.OperandElements(num_arrays + 1);
}

// How often a reduce calls its computation: once for each element that it
// reads and does not keep.
double NumReductions(const NodeSizes& columns) {
  const Shape* shape = &columns.instruction().shape();
  if (shape->IsTuple() && !shape->tuple_shapes().empty()) {
    shape = &shape->tuple_shapes(0);
  }
  const double kept =
      shape->IsArray() ? static_cast<double>(ElementCount(shape->dimensions()))
                       : 0;
  return columns.OperandElements(0) - kept;
}

// One iteration: XLA does not multiply by the trip count.
Cost LoopCost(const Cost& body, const Cost& condition) {
  return {body.flops + condition.flops,
          body.transcendentals + condition.transcendentals,
          body.bytes_accessed + condition.bytes_accessed};
}

// XLA omits zero properties of a branch, so -1 (unknown) is kept.
void Raise(double value, double* maximum) {
  if (value != 0) *maximum = std::max(*maximum, value);
}

void RaiseTo(const Cost& branch, Cost* cost) {
  Raise(branch.flops, &cost->flops);
  Raise(branch.transcendentals, &cost->transcendentals);
  Raise(branch.bytes_accessed, &cost->bytes_accessed);
}

// Unknown, but for an alternative: it stands for one of its operands and does
// no work itself.
Cost CustomCallCost(const HloInstruction& call) {
  if (IsAlternative(call)) return Cost();
  return {/*flops=*/-1, /*transcendentals=*/0, /*bytes_accessed=*/-1};
}

std::unique_ptr<xla::HloCostAnalysis> MakeAnalysis() {
  return std::make_unique<xla::HloCostAnalysis>([](const Shape& shape) {
    return ShapeUtil::ByteSizeOf(shape, kPointerBytes);
  });
}

}  // namespace

CostModel::CostModel(const Topology& topology,
                     const Column<int64_t>& element_counts)
    : topology_(topology),
      element_counts_(element_counts),
      sizes_(topology.num_nodes()),
      totals_(topology.num_computations()) {}

CostModel::~CostModel() = default;

void CostModel::SetSize(int64_t node, const Shape& shape, int64_t array_bytes) {
  if (shape.IsArray()) {
    sizes_[node] = shape.has_layout() ? array_bytes : 0;
  } else {
    sizes_[node] = SizeOf(shape);
  }
}

absl::Status CostModel::Add(int64_t node, Cost* cost) {
  const HloInstruction& instruction = *topology_.nodes[node];
  const Rule rule = RuleOf(instruction.opcode());
  *cost = Cost();
  if (rule == Rule::kFree) return absl::OkStatus();
  if (rule == Rule::kXla) {
    HLOENV_RETURN_IF_ERROR(AskXla(node, cost));
  } else {
    // Not as an int64, which the sum of three large arrays may not fit.
    cost->bytes_accessed = static_cast<double>(
        instruction.shape().IsTuple() ? LeafSizeOf(instruction.shape())
                                      : sizes_[node]);
    for (int64_t i = 0; i < instruction.operand_count(); ++i) {
      cost->bytes_accessed += static_cast<double>(sizes_[OperandOf(node, i)]);
    }
    if (rule == Rule::kFlops) {
      cost->flops = static_cast<double>(element_counts_[node]);
    } else if (rule == Rule::kTranscendental) {
      cost->transcendentals = static_cast<double>(element_counts_[node]);
    } else if (rule == Rule::kOwn) {
      HLOENV_RETURN_IF_ERROR(AddOwn(node, cost));
    }
  }
  Cost& total = totals_[topology_.computation[node]];
  total.flops += cost->flops;
  total.transcendentals += cost->transcendentals;
  total.bytes_accessed += cost->bytes_accessed;
  return absl::OkStatus();
}

absl::Status CostModel::AddOwn(int64_t node, Cost* cost) {
  const HloInstruction& instruction = *topology_.nodes[node];
  const NodeSizes columns{topology_, sizes_, element_counts_, node};
  switch (instruction.opcode()) {
    case HloOpcode::kSlice:
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kGather:
    case HloOpcode::kDynamicUpdateSlice:
    case HloOpcode::kTuple:
      cost->bytes_accessed = BytesOfParts(columns);
      break;
    case HloOpcode::kTranspose:
      if (IsBitcast(instruction)) cost->bytes_accessed = 0;
      break;
    case HloOpcode::kDot:
    case HloOpcode::kConvolution:
    case HloOpcode::kSort:
      cost->flops = FlopsOf(columns);
      break;
    case HloOpcode::kRngBitGenerator:
      cost->transcendentals = columns.output_elements();
      break;
    case HloOpcode::kReduce:
      AddCallee(node, 0, NumReductions(columns), cost);
      break;
    case HloOpcode::kMap:
      AddCallee(node, 0, columns.output_elements(), cost);
      break;
    case HloOpcode::kScatter:
      cost->bytes_accessed = BytesOfParts(columns);
      AddCallee(node, 0, NumUpdates(columns), cost);
      break;
    case HloOpcode::kCall:
      *cost = CalleeOf(node, 0);
      break;
    case HloOpcode::kWhile:
      *cost = LoopCost(CalleeOf(node, 0), CalleeOf(node, 1));
      break;
    case HloOpcode::kConditional:
      *cost = CalleeOf(node, 0);
      for (size_t i = 1; i < instruction.called_computations().size(); ++i) {
        RaiseTo(CalleeOf(node, static_cast<int64_t>(i)), cost);
      }
      break;
    case HloOpcode::kFusion:
      if (IsUnusualFusion(instruction)) return AskXla(node, cost);
      *cost = CalleeOf(node, 0);
      cost->bytes_accessed =
          static_cast<double>(BytesAccessedByFusion(instruction));
      break;
    case HloOpcode::kCustomCall:
      *cost = CustomCallCost(instruction);
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

const Cost& CostModel::CalleeOf(int64_t node, int64_t index) {
  static const Cost* const kNone = new Cost();
  while (next_call_ < topology_.call_nodes.rows() &&
         topology_.call_nodes[next_call_] < node) {
    ++next_call_;
  }
  const int64_t call = next_call_ + index;
  if (call >= topology_.call_nodes.rows() ||
      topology_.call_nodes[call] != node) {
    return *kNone;
  }
  return totals_[topology_.call_computations[call]];
}

void CostModel::AddCallee(int64_t node, int64_t index, double count,
                          Cost* cost) {
  const Cost& callee = CalleeOf(node, index);
  cost->flops = callee.flops * count;
  cost->transcendentals = callee.transcendentals * count;
}

absl::Status CostModel::AskXla(int64_t node, Cost* cost) {
  if (analysis_ == nullptr) analysis_ = MakeAnalysis();
  const HloInstruction* instruction = topology_.nodes[node];
  HLOENV_RETURN_IF_ERROR(
      Annotate(analysis_->RevisitInstruction(instruction), kInvalidModuleError,
               absl::StrCat("XLA's cost analysis failed on instruction '",
                            instruction->name(), "'")));
  // Below -1 is overflow.
  const auto read = [](int64_t value) {
    return static_cast<double>(std::max<int64_t>(value, -1));
  };
  cost->flops = read(analysis_->flop_count(*instruction));
  cost->transcendentals = read(analysis_->transcendental_count(*instruction));
  cost->bytes_accessed = read(analysis_->bytes_accessed(*instruction));
  return absl::OkStatus();
}

absl::StatusOr<Column<double>> XlaCosts(const Module& module,
                                        const Topology& topology) {
  std::unique_ptr<xla::HloCostAnalysis> analysis = MakeAnalysis();
  HLOENV_RETURN_IF_ERROR(Annotate(
      module.hlo().entry_computation()->Accept(analysis.get()),
      kInvalidModuleError, "XLA's cost analysis failed on the module"));
  Column<double> costs(topology.num_nodes(), 3);
  for (int64_t node = 0; node < topology.num_nodes(); ++node) {
    const HloInstruction& instruction = *topology.nodes[node];
    double* row = costs.row(node);
    row[0] = static_cast<double>(analysis->flop_count(instruction));
    row[1] = static_cast<double>(analysis->transcendental_count(instruction));
    row[2] = static_cast<double>(analysis->bytes_accessed(instruction));
  }
  return costs;
}

}  // namespace hloenv
