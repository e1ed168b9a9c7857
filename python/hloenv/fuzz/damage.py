# SPDX-License-Identifier: Apache-2.0
"""Small random changes of a module that make most modules invalid."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

# Edge cases: bounds of integers, signs, sizes that do not fit.
_NUMBERS = (
    *(-(2**63), -(2**31), -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 63, 64, 65, 255),
    *(1000, 65536, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 10**20),
)
_TYPES = (
    *("pred", "s4", "s8", "s16", "s32", "s64", "u2", "u4", "u8", "u32", "u64", "f16"),
    *("bf16", "f32", "f64", "c64", "c128", "f8e5m2", "f8e4m3fn", "token", "opaque"),
)
_OPCODES = re.findall(
    r"[a-z\-]+",
    """
    abs add after-all all-reduce and async-start batch-norm-grad bitcast
    bitcast-convert broadcast call cholesky clamp compare complex concatenate
    conditional constant convert convolution copy copy-start custom-call divide
    domain dot dynamic-reshape dynamic-slice dynamic-update-slice exponential fft
    fusion gather get-dimension-size get-tuple-element imag infeed iota map maximum
    multiply negate not opt-barrier outfeed pad parameter partition-id ragged-dot
    real recv reduce reduce-precision reduce-scatter reduce-window replica-id
    reshape reverse rng rng-bit-generator scan scatter select select-and-scatter
    send set-dimension-size slice sort topk transpose triangular-solve tuple while
    xor
    """,
)
_ATTRIBUTES = (
    "sharding={devices=[2,2]<=[4]}",
    "sharding={{replicated}, {maximal device=0}}",
    'metadata={op_name="a" stack_frame_id=7}',
    "control-predecessors={%a}",
    "dimensions={0,0}",
    "dimensions={}",
    "index=1",
    "window={size=0x1 stride=0x0}",
    "padding=0_0_-1",
    "slice={[1:0]}",
    'origin={{"a" {1}}}',
    "frontend_attributes={a={b}}",
    'backend_config={"a":{}}',
    "statistics={visualizing_index=3,a=1}",
    "operand_precision={high,high,high}",
)
_TOKEN = re.compile(rb"[A-Za-z_%][\w.\-]*|-?\d+|[^\s\w]")
_NUMBER = re.compile(rb"(?<![\w.])-?\d+")
_TYPE = re.compile(rb"\b(?:pred|[suf]\d+|bf16|c\d+|token)(?=\[)")
_SHAPE = re.compile(rb"\b(?:pred|[suf]\d+|bf16|c\d+|token)\[[^\]]*\](?:\{[\d,]*\})?")
_CALL = re.compile(rb"(?<= )[a-z][a-z\-]*(?=\()")
_ATTRIBUTE = re.compile(rb", [a-z_\-]+=(?:\{[^{}]*\}|[^,\n{} ]+)")


def _replace(
    pattern: re.Pattern[bytes],
    text: bytes,
    by: Callable[[bytes], bytes],
    rng: random.Random,
) -> bytes:
    """Replaces one occurrence."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + by(match.group()) + text[match.end() :]


def _change_number(text: bytes, rng: random.Random) -> bytes:
    def by(old: bytes) -> bytes:
        near = int(old[:18]) + rng.choice((-1, 1)) if old.strip(b"-") else 0
        return str(rng.choice((near, near, rng.choice(_NUMBERS)))).encode()

    return _replace(_NUMBER, text, by, rng)


def _change_type(text: bytes, rng: random.Random) -> bytes:
    return _replace(_TYPE, text, lambda _: rng.choice(_TYPES).encode(), rng)


def _change_shape(text: bytes, rng: random.Random) -> bytes:
    shapes = _SHAPE.findall(text)
    if not shapes:
        return text
    other = rng.choice(shapes)
    made = (other, b"(" + other + b")", b"()", b"token[]", b"f32[]", b"f32[<=4]{0}")
    return _replace(_SHAPE, text, lambda _: rng.choice(made), rng)


def _change_opcode(text: bytes, rng: random.Random) -> bytes:
    return _replace(_CALL, text, lambda _: rng.choice(_OPCODES).encode(), rng)


def _change_attribute(text: bytes, rng: random.Random) -> bytes:
    found = _ATTRIBUTE.findall(text)
    others = [*found, *found, b""]
    return _replace(_ATTRIBUTE, text, lambda _: rng.choice(others), rng)


def _add_attribute(text: bytes, rng: random.Random) -> bytes:
    lines = text.split(b"\n")
    number = rng.randrange(len(lines))
    lines[number] += b", " + rng.choice(_ATTRIBUTES).encode()
    return b"\n".join(lines)


def _change_token(text: bytes, rng: random.Random) -> bytes:
    tokens = _TOKEN.findall(text)
    if not tokens:
        return text
    other = rng.choice(tokens)
    makers: tuple[Callable[[bytes], bytes], ...] = (
        lambda _: other,
        lambda _: other,
        lambda _: b"",
        lambda old: old + b" " + old,
    )
    return _replace(_TOKEN, text, rng.choice(makers), rng)


def _change_name(text: bytes, rng: random.Random) -> bytes:
    names = re.compile(rb"%[\w.\-]+")
    found = names.findall(text)
    return _replace(names, text, lambda _: rng.choice(found), rng)


def _change_lines(text: bytes, rng: random.Random) -> bytes:
    lines = text.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines[a], lines[b] = lines[b], lines[a]
        case 1:
            del lines[a]
        case 2:
            lines.insert(b, lines[a])
        case _:
            lines[a] = lines[b]
    return b"\n".join(lines)


def _change_bytes(text: bytes, rng: random.Random) -> bytes:
    if not text:
        return text
    at = rng.randrange(len(text))
    match rng.randrange(4):
        case 0:
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 1:
            return text[:at] + text[at + rng.randint(1, 8) :]
        case 2:
            return text[:at] + bytes([text[at] ^ (1 << rng.randrange(8))]) + text[at:]
        case _:
            return text[:at]


def _nest(text: bytes, rng: random.Random) -> bytes:
    depth = rng.choice((2, 50, 500, 20000))
    pairs = ((b"(", b")"), (b"{", b"}"), (b"[", b"]"), (b"add(", b")"), (b"/*", b"*/"))
    before, after = rng.choice(pairs)
    return _replace(_TOKEN, text, lambda old: before * depth + old + after * depth, rng)


def _change_everywhere(text: bytes, rng: random.Random) -> bytes:
    """Replaces all occurrences of a size or type; the module often stays valid."""
    if rng.random() < 0.3:
        types = sorted(set(_TYPE.findall(text)))
        if not types:
            return text
        old, new = rng.choice(types), rng.choice(_TYPES).encode()
        return re.sub(rb"\b" + old + rb"(?=\[)", new, text)
    sizes = sorted(
        {
            number
            for each in _SHAPE.findall(text)
            for number in re.findall(rb"(?<=[\[,])\d+", each.partition(b"{")[0])
        }
    )
    if not sizes:
        return text
    old = rng.choice(sizes)
    new = str(rng.choice((0, 1, 2, 5, 64, 1000, int(old) + 1))).encode()

    def by(match: re.Match[bytes]) -> bytes:
        dims, brace, layout = match.group().partition(b"{")
        return re.sub(rb"(?<=[\[,])" + old + rb"(?=[,\]])", new, dims) + brace + layout

    return _SHAPE.sub(by, text)


_ALIKE = tuple(
    tuple(each.split())
    for each in (
        "add subtract multiply divide maximum minimum power remainder atan2 and or xor",
        "negate abs sine cosine tanh exponential log sqrt rsqrt floor sign not copy"
        " real imag is-finite convert bitcast bitcast-convert reshape cholesky",
        "shift-left shift-right-logical shift-right-arithmetic add multiply compare",
        "select clamp triangular-solve map reverse transpose broadcast",
    )
)


def _change_alike(text: bytes, rng: random.Random) -> bytes:
    """Replaces an opcode by one with the same number of operands."""

    def by(old: bytes) -> bytes:
        groups = [group for group in _ALIKE if old.decode() in group]
        return rng.choice(rng.choice(groups or _ALIKE)).encode()

    return _replace(_CALL, text, by, rng)


_WINDOW = re.compile(rb"(?<=window=\{)size=[\dx]+[^{}]*")


def _change_window(text: bytes, rng: random.Random) -> bytes:
    """Changes padding, possibly beyond the operand's size, and dilation."""

    def by(old: bytes) -> bytes:
        size, *others = old.split(b" ")
        rank = size.count(b"x") + 1

        def drawn(choices: Sequence[object]) -> str:
            return "x".join(str(rng.choice(choices)) for _ in range(rank))

        pads = (-(2**31), -1000, -10, -3, -2, -1, 0, 1, 4, 2**31)
        pairs = [f"{low}_{rng.choice(pads)}" for low in pads]
        sizes = (1, 1, 2, 3, 2**31)
        key, value = rng.choice(
            (
                ("pad", drawn(pairs)),
                ("pad", drawn(pairs)),
                ("lhs_dilate", drawn(sizes)),
                ("rhs_dilate", drawn(sizes)),
                ("stride", drawn(sizes)),
            )
        )
        kept = [each for each in others if not each.startswith(key.encode())]
        return b" ".join((size, *kept, f"{key}={value}".encode()))

    return _replace(_WINDOW, text, by, rng)


_TEXT: tuple[tuple[Callable[[bytes, random.Random], bytes], int], ...] = (
    (_change_number, 8),
    (_change_everywhere, 6),
    (_change_alike, 8),
    (_change_type, 4),
    (_change_shape, 5),
    (_change_opcode, 4),
    (_change_attribute, 4),
    (_add_attribute, 2),
    (_change_token, 3),
    (_change_name, 5),
    (_change_lines, 5),
    (_change_bytes, 2),
    (_nest, 1),
)


def damage_text(text: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """Returns HLO text with one change, sometimes a line of another module."""
    if rng.random() < 0.03:
        other = rng.choice(corpus[: len(corpus) // 4 + 1]).split(b"\n")
        lines = text.split(b"\n")
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(other))
        return b"\n".join(lines)
    # The mutants of texts without windows do not depend on `_change_window`.
    if b"window={" in text and rng.random() < 0.2:
        return _change_window(text, rng)
    functions, weights = zip(*_TEXT, strict=True)
    (function,) = rng.choices(functions, weights)
    damaged: bytes = function(text, rng)
    return damaged


# --- protos: the wire format, without a description of the messages -------------------

_Field = tuple[int, int, int, int]  # tag, where it begins, its payload, where it ends


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("no varint")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes(data) + bytes([value])


def _fields(data: bytes) -> list[_Field]:
    """The fields of a message.

    Raises:
        ValueError: `data` is not a message.
    """
    fields = []
    at = 0
    while at < len(data):
        begin = at
        tag, payload = _read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            _, at = _read_varint(data, payload)
        elif wire in (1, 5):
            at = payload + (8 if wire == 1 else 4)
        elif wire == 2:
            size, payload = _read_varint(data, payload)
            at = payload + size
        else:
            raise ValueError("no field")
        if at > len(data) or tag >> 3 == 0:
            raise ValueError("no field")
        fields.append((tag, begin, payload, at))
    return fields


def _change_fields(data: bytes, fields: list[_Field], rng: random.Random) -> bytes:
    parts = [data[begin:end] for _, begin, _, end in fields]
    a, b = rng.randrange(len(parts)), rng.randrange(len(parts))
    match rng.randrange(5):
        case 0:
            del parts[a]
        case 1:
            parts.insert(b, parts[a])
        case 2:
            parts[a], parts[b] = parts[b], parts[a]
        case 3:  # another field's value
            tag = _varint(fields[a][0] >> 3 << 3 | fields[b][0] & 7)
            old = len(_varint(fields[b][0]))
            parts[a] = tag + parts[b][old:]
        case _:
            parts.append(_varint(rng.randrange(1, 100) << 3) + _random_number(rng))
    return b"".join(parts)


def _random_number(rng: random.Random) -> bytes:
    return _varint(rng.choice((*_NUMBERS, rng.randrange(300))))


def _change_value(data: bytes, field: _Field, rng: random.Random) -> bytes:
    """Changes a field or its content."""
    tag, begin, payload, end = field
    head = _varint(tag)
    if tag & 7 == 0:
        value, _ = _read_varint(data, payload)
        near = _varint(value + rng.choice((-1, 1)))
        return (
            data[:begin] + head + rng.choice((near, _random_number(rng))) + data[end:]
        )
    inner = data[payload:end]
    if tag & 7 == 2:
        inner = _damage_message(inner, rng)
        head += _varint(len(inner))
    else:
        inner = bytes(rng.randrange(256) for _ in inner)
    return data[:begin] + head + inner + data[end:]


def _damage_message(data: bytes, rng: random.Random) -> bytes:
    try:
        fields = _fields(data)
    except ValueError:
        fields = []
    if not fields:  # a string, packed numbers, or nothing
        return _change_bytes(data, rng) if data else _random_number(rng)
    # Most damage is inside nested messages.
    if rng.random() < 0.2:
        return _change_fields(data, fields, rng)
    sizes = [end - begin for _, begin, _, end in fields]
    (field,) = rng.choices(fields, [size**0.5 for size in sizes])
    return _change_value(data, field, rng)


def damage_proto(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """Returns a serialized module with one changed field or byte."""
    del corpus
    if rng.random() < 0.1:
        return _change_bytes(data, rng)
    return _damage_message(data, rng)
