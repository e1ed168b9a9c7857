# SPDX-License-Identifier: Apache-2.0
"""A module as arrays, for graph networks and other models."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, Generic, NoReturn, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .._native import core
from .._registry import load_attribute
from ..errors import GraphError
from ..hlo.module import HloModule, as_module

_T = TypeVar("_T", bound=np.generic)

# Number of dimensions in `dims` and `minor_to_major`.
MAX_RANK = 8


@cache
def opcodes() -> tuple[str, ...]:
    """XLA's opcodes by `HloGraph.opcode`; fixed for one TensorFlow version."""
    return tuple(core.opcode_names())


@cache
def dtypes() -> tuple[str, ...]:
    """XLA's element types by `HloGraph.dtype`: "none" (no value), "tuple", ..."""
    return tuple(core.dtype_names())


@cache
def comparison_directions() -> tuple[str, ...]:
    """Directions by `HloGraph.comparison_direction`: "EQ", "NE", ..."""
    return tuple(core.comparison_direction_names())


@cache
def fusion_kinds() -> tuple[str, ...]:
    """Kinds of fusion by `HloGraph.fusion_kind`: "kLoop", "kInput", ..."""
    return tuple(core.fusion_kind_names())


@cache
def attribute_names() -> tuple[str, ...]:
    """Attributes by `HloGraph.attribute_keys`.

    A name means the same for every opcode; `_0` to `_7` count dimensions.

    * `dimensions_k`: the `dimensions` of broadcast, concatenate, iota, reduce,
      reverse, sort, transpose, all-gather, all-to-all and reduce-scatter.
    * `sizes_k`: window sizes (convolution, reduce-window, select-and-scatter), slice
      sizes (dynamic-slice, gather), FFT lengths.
    * `strides_k`: strides of a slice or window.
    * `low_k`, `high_k`: start and limit of a slice; padding, which may be negative,
      before and after (pad, windows).
    * `base_dilations_k`, `window_dilations_k`: of a window; a pad has its interior
      padding + 1 as base dilation.
    * `lhs_contracting_k`, `rhs_contracting_k`, `lhs_batch_k`, `rhs_batch_k`: dimension
      numbers of a dot (the first 4 of each), and its extents as a batched matrix
      product: `dot_batch_size`, `dot_lhs_size`, `dot_rhs_size`, `dot_contracting_size`.
    * `input_batch`, `input_feature`, `kernel_input_feature`, `kernel_output_feature`,
      `output_batch`, `output_feature`, `input_spatial_k`, `kernel_spatial_k`,
      `output_spatial_k`: dimension numbers of a convolution (the first 3 of each), and
      its `feature_group_count` and `batch_group_count`.
    * `slice_dimensions_k`, `collapsed_dimensions_k`, `index_map_k` (the first 4 of
      each), `index_vector_dimension`: `offset_dims`, `collapsed_slice_dims` and
      `start_index_map` of a gather; `update_window_dims`, `inserted_window_dims` and
      `scatter_dims_to_operand_dims` of a scatter.
    """
    return tuple(core.attribute_names())


class Array(Generic[_T]):
    """An array of a graph, fetched when it is first read.

    Attributes:
        dtype: numpy scalar type.
        shape: letters of `HloGraph`'s docstring, and numbers.
        doc: what it holds, with its unit.
    """

    def __init__(self, dtype: type[_T], shape: str, doc: str) -> None:
        self.dtype = dtype
        self.shape = shape
        self.doc = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.__doc__ = f"[{self.shape}] {self.dtype.__name__}: {self.doc}"

    @overload
    def __get__(self, graph: None, owner: type) -> Array[_T]: ...
    @overload
    def __get__(self, graph: HloGraph, owner: type) -> npt.NDArray[_T]: ...
    def __get__(self, graph: HloGraph | None, owner: type) -> Any:
        if graph is None:
            return self
        value = getattr(graph._core, self.name)
        graph.__dict__[self.name] = value  # shadows this descriptor
        return value

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"


class HloGraph:
    """One module as arrays.

    A node is an instruction of a computation that is reachable from the entry. Nodes
    are in post order: computations after their callees, so that the entry is last, and
    instructions after their operands. An edge connects an operand to its user in the
    same computation, and its source precedes its target; the edges of a target are its
    operands in order, then its control predecessors.

    Arrays are read-only views of the C++ graph, which lives as long as any of them.
    Letters in shapes: N nodes, E edges, C computations, K calls, P parameters,
    T attributes, A alternatives, S sites (nodes that share the decision of an
    alternative), X choices of all alternatives, O operands of all sites, Q passes of
    all choices. Offsets [M + 1] are the starts of M segments of another array,
    followed by its length. -1 means "none" unless stated otherwise.
    """

    # Edges by target; the users of node i are
    # out_targets[out_offsets[i]:out_offsets[i + 1]].
    in_offsets = Array(np.int64, "N+1", "offsets into the edge arrays, by target")
    out_offsets = Array(np.int64, "N+1", "offsets into out_edges, by source")
    out_targets = Array(np.int64, "E", "target of each edge, by source")
    out_edges = Array(np.int64, "E", "number of each edge, by source, ascending")
    edge_sources = Array(np.int64, "E", "source node")
    edge_targets = Array(np.int64, "E", "target node")
    edge_operand_index = Array(np.int32, "E", "operand index; -1 for control edges")
    edge_is_control = Array(np.bool_, "E", "control dependency, without data")
    edge_bytes = Array(np.int64, "E", "bytes of the value, sum over leaves")
    edge_dtype = Array(np.int32, "E", "index into dtypes()")
    edge_rank = Array(np.int32, "E", "number of dimensions, 0 for tuples")
    edge_dims = Array(np.int64, "E,8", "dimensions in elements; -1 pads")
    edge_minor_to_major = Array(np.int8, "E,8", "layout; -1 pads or no layout")
    edge_fusion_relation = Array(
        np.int8, "E", "0 outside fusions, 1 inside one, 2 into or out of a fusion"
    )

    # Nodes: opcode and shape.
    opcode = Array(np.int32, "N", "index into opcodes()")
    dtype = Array(np.int32, "N", "of the output, index into dtypes()")
    rank = Array(np.int32, "N", "number of dimensions, also above 8; 0 for tuples")
    dims = Array(
        np.int64, "N,8", "dimensions in elements, upper bounds; -1 pads or unbounded"
    )
    minor_to_major = Array(np.int8, "N,8", "layout; -1 pads, all -1 without a layout")
    element_count = Array(np.int64, "N", "elements of the output, sum over leaves")
    input_bytes = Array(np.int64, "N", "sum of output_bytes over operands")
    output_bytes = Array(np.int64, "N", "bytes of the output, sum over leaves")

    # Nodes: cost from XLA's HloCostAnalysis. A call, fusion or conditional has the cost
    # of its callees, a while loop that of one iteration, an alternative none.
    flops = Array(np.float64, "N", "operations; -1 unknown (custom calls)")
    transcendentals = Array(np.float64, "N", "exp, log, tanh and the like")
    bytes_accessed = Array(
        np.float64, "N", "bytes read and written; -1 unknown (custom calls)"
    )

    # Nodes: position and flags.
    computation = Array(np.int32, "N", "number of the computation")
    fusion_node = Array(np.int64, "N", "the fusion that contains this node")
    is_in_fusion = Array(np.bool_, "N", "inside a fusion")
    user_count = Array(np.int32, "N", "distinct users")
    operand_count = Array(np.int32, "N", "operands, with repetitions")
    is_parameter = Array(np.bool_, "N", "parameter")
    is_constant = Array(np.bool_, "N", "constant")
    is_root = Array(np.bool_, "N", "root of its computation")
    has_side_effect = Array(np.bool_, "N", "its own, or of its callees")
    is_alternative = Array(np.bool_, "N", "site of an alternative")

    # Nodes: attributes; `attribute_block` returns them as columns.
    parameter_number = Array(np.int32, "N", "of a parameter")
    tuple_index = Array(np.int32, "N", "of a get-tuple-element")
    comparison_direction = Array(
        np.int8, "N", "of a compare, index into comparison_directions()"
    )
    fusion_kind = Array(np.int8, "N", "of a fusion, index into fusion_kinds()")
    custom_call_target = Array(
        np.int32, "N", "of a custom call, index into custom_call_targets"
    )
    trip_count = Array(np.int64, "N", "iterations of a while, if known")
    attribute_offsets = Array(np.int64, "N+1", "offsets into the attributes")
    attribute_keys = Array(
        np.int32, "T", "index into attribute_names(), ascending for one node"
    )
    attribute_values = Array(np.int64, "T", "the attribute; -1 has no special meaning")

    # Computations.
    computation_offsets = Array(np.int64, "C+1", "offsets into the nodes")
    computation_roots = Array(np.int64, "C", "root node")
    computation_callers = Array(np.int64, "C", "first node that calls it")
    computation_is_entry = Array(np.bool_, "C", "the module's entry")
    computation_is_fusion = Array(np.bool_, "C", "body of a fusion")
    computation_num_instructions = Array(np.int64, "C", "instructions")
    computation_flops = Array(np.float64, "C", "sum of flops over its nodes")
    computation_transcendentals = Array(
        np.float64, "C", "sum of transcendentals over its nodes"
    )
    computation_bytes_accessed = Array(
        np.float64, "C", "sum of bytes_accessed over its nodes"
    )
    parameter_offsets = Array(np.int64, "C+1", "offsets into parameter_nodes")
    parameter_nodes = Array(np.int64, "P", "parameters by number")
    call_nodes = Array(np.int64, "K", "calling node, ascending")
    call_computations = Array(np.int32, "K", "called computation")

    # Alternatives. The choices of alternative a are choice_offsets[a] to
    # choice_offsets[a + 1] - 1; the first is the original.
    alternative_kind = Array(
        np.int32, "A", "index into alternative_kinds; -1 for an index without a site"
    )
    site_offsets = Array(np.int64, "A+1", "offsets into site_nodes")
    site_nodes = Array(np.int64, "S", "nodes, by alternative, then ascending")
    choice_offsets = Array(np.int64, "A+1", "offsets into the choices")
    site_choice_offsets = Array(np.int64, "S+1", "offsets into site_choice_nodes")
    site_choice_nodes = Array(np.int64, "O", "node of each choice at the site")
    choice_pass_offsets = Array(np.int64, "X+1", "offsets into choice_passes")
    choice_passes = Array(
        np.int32, "Q", "passes that propose the choice, index into pass_names"
    )

    def __init__(self) -> None:
        raise TypeError("use HloGraph.from_module")

    _core: core.Graph
    _module: HloModule

    @classmethod
    def from_module(cls, module: HloModule | str | os.PathLike[str]) -> HloGraph:
        """The graph of a module, HLO text, or a path to either form of one.

        Raises:
            ParseError: it is not a module.
            InvalidModuleError: XLA's cost analysis rejects an instruction, or the
                alternatives are inconsistent.
        """
        graph = object.__new__(cls)
        source = as_module(module)
        graph.__dict__["_core"] = core.build_graph(source._core)
        graph.__dict__["_module"] = source
        return graph

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the module; unpickling rebuilds the arrays and checks their order."""
        return _unpickle, (type(self), self._module, self._digest())

    def _digest(self) -> str:
        """Hash of the order of nodes and alternatives."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.opcode, self.edge_sources, self.edge_targets):
            digest.update(array.tobytes())
        digest.update(self.site_nodes.tobytes())
        return digest.hexdigest()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot set {name!r}: graphs are read-only")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {name!r}: graphs are read-only")

    @property
    def module_name(self) -> str:
        """Name of the module."""
        return self._core.module_name

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.opcode)

    @property
    def num_edges(self) -> int:
        """E, control edges included."""
        return len(self.edge_sources)

    @property
    def num_computations(self) -> int:
        """C."""
        return len(self.computation_roots)

    @property
    def num_alternatives(self) -> int:
        """A."""
        return len(self.alternative_kind)

    @cached_property
    def num_choices(self) -> npt.NDArray[np.int64]:
        """[A] choices of each alternative, the original included."""
        return _frozen(np.diff(self.choice_offsets))

    @cached_property
    def alternative_nodes(self) -> npt.NDArray[np.int64]:
        """[A] the first site of each alternative."""
        nodes = np.full(self.num_alternatives, -1, np.int64)
        has_site = np.diff(self.site_offsets) > 0
        nodes[has_site] = self.site_nodes[self.site_offsets[:-1][has_site]]
        return _frozen(nodes)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """[N] names of the instructions; computed on first use."""
        return self._texts(self._core.node_names)

    @cached_property
    def node_shapes(self) -> tuple[str, ...]:
        """[N] shapes as HLO text, with tuple elements; computed on first use."""
        return self._texts(self._core.node_shapes)

    @cached_property
    def computation_names(self) -> tuple[str, ...]:
        """[C] names of the computations; computed on first use."""
        return self._texts(self._core.computation_names)

    @cached_property
    def custom_call_targets(self) -> tuple[str, ...]:
        """Targets of the custom calls, in order of first appearance."""
        return self._texts(lambda: self._core.custom_call_targets)

    @cached_property
    def alternative_kinds(self) -> tuple[str, ...]:
        """Kinds of the alternatives, in order of first appearance."""
        return tuple(self._core.alternative_kinds)

    @cached_property
    def pass_names(self) -> tuple[str, ...]:
        """Passes that propose choices, in order of first appearance."""
        return tuple(self._core.pass_names)

    def _texts(self, read: Callable[[], Sequence[str]]) -> tuple[str, ...]:
        try:
            return tuple(read())
        except UnicodeDecodeError as error:
            raise GraphError(
                f"a name in {self.module_name!r} is not valid text: {error.object!r}"
            ) from None

    def operands(self, node: int) -> npt.NDArray[np.int64]:
        """Operands of `node` in order, then its control predecessors."""
        return self.edge_sources[self.in_offsets[node] : self.in_offsets[node + 1]]

    def users(self, node: int) -> npt.NDArray[np.int64]:
        """Users of `node`, ascending, once for each edge."""
        return self.out_targets[self.out_offsets[node] : self.out_offsets[node + 1]]

    def choice_node(self, alternative: int, choice: int) -> int:
        """Node of a choice at the alternative's first site."""
        site = self.site_offsets[alternative]
        return int(self.site_choice_nodes[self.site_choice_offsets[site] + choice])

    def attribute_block(
        self, names: Sequence[str] | None = None, *, absent: int = -1
    ) -> npt.NDArray[np.int64]:
        """Attributes in columns: [N, len(names)] int64.

        Args:
            names: of `attribute_names()`; None for all, about 850 bytes per node.
            absent: value for missing attributes. Paddings may be -1; if
                `base_dilations_k` is above 0, they are present.

        Raises:
            GraphError: an unknown name.
        """
        known = attribute_names()
        wanted = known if names is None else tuple(names)
        columns = np.full(len(known), -1, np.int64)
        for column, name in enumerate(wanted):
            if name not in known:
                raise GraphError(
                    f"no attribute {name!r}; attribute_names() has all {len(known)}"
                )
            columns[known.index(name)] = column
        nodes = np.repeat(np.arange(self.num_nodes), np.diff(self.attribute_offsets))
        column_of = columns[self.attribute_keys]
        is_wanted = column_of >= 0
        block = np.full((self.num_nodes, len(wanted)), absent, np.int64)
        block[nodes[is_wanted], column_of[is_wanted]] = self.attribute_values[is_wanted]
        return block

    @classmethod
    def array_names(cls) -> tuple[str, ...]:
        """Names of all arrays, in the order of this class's source."""
        return tuple(k for k, v in vars(cls).items() if isinstance(v, Array))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name, for example for `np.savez`."""
        return {name: getattr(self, name) for name in self.array_names()}

    def validate(self) -> None:
        """Checks the consistency of the arrays; takes longer than building them.

        Raises:
            GraphError: they are inconsistent, which is a bug in hloenv.
        """
        problems = load_attribute("hloenv.graph.validate:problems")
        for problem in problems(self):
            raise GraphError(f"graph of {self.module_name!r}: {problem}")

    def __repr__(self) -> str:
        return (
            f"<HloGraph {self.module_name!r}: {self.num_nodes} nodes, "
            f"{self.num_edges} edges, {self.num_computations} computations, "
            f"{self.num_alternatives} alternatives>"
        )


def _unpickle(cls: type[HloGraph], module: HloModule, digest: str) -> HloGraph:
    graph = cls.from_module(module)
    if graph._digest() != digest:
        raise GraphError(
            f"the nodes of the graph of {graph.module_name!r} are in another order "
            "than in the pickle, which is of another version of hloenv or XLA; build "
            "the graph again"
        )
    return graph


def _frozen(array: npt.NDArray[_T]) -> npt.NDArray[_T]:
    array.flags.writeable = False
    return array
