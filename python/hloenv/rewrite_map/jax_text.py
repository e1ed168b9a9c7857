# SPDX-License-Identifier: Apache-2.0
"""Small HLO modules as Python functions of jax.lax."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import HloEnvError
from ..hlo.array_spec import ArraySpec
from ..hlo.text import Computation, Instruction, ModuleText
from .operations import Operation, array_type, operation_of

# Functions of jax.lax that take the operands and nothing else.
_ELEMENTWISE = {
    **{
        name: name
        for name in (
            *("abs", "add", "atan2", "cbrt", "ceil", "clamp", "clz", "erf", "floor"),
            *("imag", "real", "sign", "tan", "tanh", "logistic", "rsqrt", "sqrt"),
            *("select", "complex"),
        )
    },
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
    **{"not": "bitwise_not", "negate": "neg", "subtract": "sub", "multiply": "mul"},
    **{"divide": "div", "remainder": "rem", "maximum": "max", "minimum": "min"},
    **{"exponential": "exp", "exponential-minus-one": "expm1", "log": "log"},
    **{"log-plus-one": "log1p", "power": "pow", "sine": "sin", "cosine": "cos"},
    **{"is-finite": "is_finite", "round-nearest-afz": "round"},
    **{"shift-left": "shift_left", "shift-right-logical": "shift_right_logical"},
    "shift-right-arithmetic": "shift_right_arithmetic",
}


class NotInJaxError(HloEnvError):
    """An operation has no form in `jax_function`."""


def dtype_name(hlo_name: str) -> str:
    """The name in numpy of an element type of HLO.

    Raises:
        NotInJaxError: there is none.
    """
    try:
        return ArraySpec((), hlo_name).dtype.name
    except TypeError:
        raise NotInJaxError(f"jax has no arrays of {hlo_name}") from None


def jax_function(text: ModuleText) -> tuple[str, list[tuple[tuple[int, ...], str]]]:
    """The entry computation as the Python source of `function(p0, p1, ...)`.

    Returns:
        The source, and shape and numpy type of each parameter.

    Raises:
        NotInJaxError: an operation has no form here.
    """
    entry = text.computations[text.entry]
    parameters: dict[int, tuple[tuple[int, ...], str]] = {}
    lines = []
    values: list[str] = []
    for each in entry.instructions:
        operation = operation_of(each, entry, text.computations)
        if each.opcode == "parameter":
            number = int(each.attributes.split(",")[0])
            type_ = operation.type
            parameters[number] = (type_.dims, dtype_name(type_.dtype))
            values.append(f"p{number}")
            continue
        values.append(f"v{len(values)}")
        operands = [values[index] for index in each.operands]
        expression = _expression(each, operation, operands, text)
        lines.append(f"    {values[-1]} = {expression}")
    names = ", ".join(f"p{number}" for number in range(len(parameters)))
    source = "\n".join(
        [f"def function({names}):", *lines, f"    return {values[entry.root]}"]
    )
    return source, [parameters[number] for number in range(len(parameters))]


def _expression(
    instruction: Instruction,
    operation: Operation,
    operands: list[str],
    text: ModuleText,
) -> str:
    opcode = operation.opcode
    if opcode in _ELEMENTWISE:
        return f"lax.{_ELEMENTWISE[opcode]}({', '.join(operands)})"
    if opcode in ("reduce", "reduce-window"):
        return _reduction(instruction, operation, operands, text)
    if opcode == "constant":
        return _constant(instruction, operation)
    write = _WRITERS.get(opcode)
    if write is None:
        raise NotInJaxError(f"{opcode} is not written in jax here")
    return write(operation, operands)


def _constant(instruction: Instruction, operation: Operation) -> str:
    literal = instruction.attributes
    type_ = operation.type
    values = re.findall(r"-?(?:inf|nan|true|false|[\d.]+(?:e[+-]?\d+)?)", literal)
    if len(values) != type_.num_elements:
        raise NotInJaxError("a constant is not written in jax here")
    names = {"true": "True", "false": "False"}
    numbers = ", ".join(
        f"float('{each}')"
        if each.lstrip("-") in ("inf", "nan")
        else names.get(each, each)
        for each in values
    )
    array = f"np.array([{numbers}], {dtype_name(type_.dtype)!r})"
    return f"jnp.asarray({array}.reshape({type_.dims}))"


def _reduction(
    instruction: Instruction,
    operation: Operation,
    operands: list[str],
    text: ModuleText,
) -> str:
    body = text.computations[instruction.callees[0]]
    combine = _combiner(body)
    if combine is None or len(operands) != 2:
        raise NotInJaxError("a reduction by more than one operation")
    start = f"{operands[0]}, {operands[1]}, lax.{combine}"
    if operation.opcode == "reduce":
        return f"lax.reduce({start}, {operation.numbers('dimensions')})"
    window = operation.window
    return (
        f"lax.reduce_window({start}, {window['size']}, {window['stride']}, "
        f"{window['pad']}, {window['lhs_dilate']}, {window['rhs_dilate']})"
    )


def _combiner(body: Computation) -> str | None:
    """The function of a computation of one operation on its two parameters."""
    opcodes = [each.opcode for each in body.instructions]
    if opcodes.count("parameter") != 2 or len(opcodes) != 3:
        return None
    return _ELEMENTWISE.get(body.instructions[body.root].opcode)


# Names of the first two dimensions of input, kernel and output in jax's order.
_FEATURES = (("b", "f"), ("o", "i"), ("b", "f"))


def _convolution(operation: Operation, operands: list[str]) -> str:
    window = operation.window
    if any(window["rhs_reversal"]):
        raise NotInJaxError("jax has no convolution with a reversed window")
    labels = re.split(r"_|->", operation.attribute("dim_labels"))
    specs = []
    for label, (first, second) in zip(labels, _FEATURES, strict=True):
        spatial = sorted(each for each in label if each.isdigit())
        specs.append(tuple(label.index(each) for each in (first, second, *spatial)))
    return (
        f"lax.conv_general_dilated({', '.join(operands)}, {window['stride']}, "
        f"{window['pad']}, {window['lhs_dilate']}, {window['rhs_dilate']}, "
        f"lax.ConvDimensionNumbers({', '.join(map(str, specs))}), "
        f"{operation.attribute('feature_group_count') or 1}, "
        f"{operation.attribute('batch_group_count') or 1})"
    )


def _dot(operation: Operation, operands: list[str]) -> str:
    names = ("contracting", "batch")
    left, right = (
        tuple(operation.numbers(f"{side}_{name}_dims") for name in names)
        for side in ("lhs", "rhs")
    )
    numbers = tuple(zip(left, right, strict=True))
    type_ = dtype_name(operation.type.dtype)
    return (
        f"lax.dot_general({', '.join(operands)}, {numbers}, "
        f"preferred_element_type={type_!r})"
    )


def _slice(operation: Operation, operands: list[str]) -> str:
    parts = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", operation.attribute("slice"))
    starts, limits, strides = ([int(part[i] or 1) for part in parts] for i in range(3))
    return f"lax.slice({operands[0]}, {starts}, {limits}, {strides})"


def _pad(operation: Operation, operands: list[str]) -> str:
    padding = []
    for part in operation.attribute("padding").split("x"):
        low, high, *inner = (int(each) for each in part.split("_"))
        padding.append((low, high, *(inner or [0])))
    return f"lax.pad({', '.join(operands)}, {padding})"


def _compare(operation: Operation, operands: list[str]) -> str:
    return f"lax.{operation.attribute('direction').lower()}({', '.join(operands)})"


def _iota(operation: Operation, _: list[str]) -> str:
    type_, dimension = operation.type, operation.attribute("iota_dimension") or 0
    return (
        f"lax.broadcasted_iota({dtype_name(type_.dtype)!r}, {type_.dims}, {dimension})"
    )


def _dims(operation: Operation) -> tuple[int, ...]:
    return array_type(operation.shape).dims


_WRITERS: dict[str, Callable[[Operation, list[str]], str]] = {
    "broadcast": lambda each, x: (
        f"lax.broadcast_in_dim({x[0]}, {_dims(each)}, {each.numbers('dimensions')})"
    ),
    "compare": _compare,
    "concatenate": lambda each, x: (
        f"lax.concatenate([{', '.join(x)}], {each.numbers('dimensions')[0]})"
    ),
    "convert": lambda each, x: (
        f"lax.convert_element_type({x[0]}, {dtype_name(each.type.dtype)!r})"
    ),
    "convolution": _convolution,
    "copy": lambda _, x: x[0],
    "dot": _dot,
    "dynamic-slice": lambda each, x: (
        f"lax.dynamic_slice({x[0]}, [{', '.join(x[1:])}], {_dims(each)})"
    ),
    "dynamic-update-slice": lambda _, x: (
        f"lax.dynamic_update_slice({x[0]}, {x[1]}, [{', '.join(x[2:])}])"
    ),
    "iota": _iota,
    "pad": _pad,
    "reshape": lambda each, x: f"lax.reshape({x[0]}, {_dims(each)})",
    "reverse": lambda each, x: f"lax.rev({x[0]}, {each.numbers('dimensions')})",
    "slice": _slice,
    "transpose": lambda each, x: f"lax.transpose({x[0]}, {each.numbers('dimensions')})",
    "tuple": lambda _, x: f"({', '.join(x)},)",
}
