# SPDX-License-Identifier: Apache-2.0
"""Formats of the store: keys, rows, JSON bodies, and exported files.

A row consists of the fields of the key, `created`, `failed`, `body`, and a checksum of
these. Bodies are standard JSON; NaN and infinities are encoded as `{"$float": "nan"}`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from .._files import replacing
from .._optional import needed_by
from ..errors import StoreError

_TAG = "$float"
_TAG_TEXT = f'"{_TAG}"'
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_LEAVES = frozenset({str, int, float, bool, type(None)})
_INT64 = range(-(2**63), 2**63)
# Of a Parquet file: rows held in memory, and maximum columns for numbers in values.
_GROUP_ROWS = 10_000
_MAX_NUMBER_COLUMNS = 64


@dataclass(frozen=True, order=True)
class RecordKey:
    """What a result depends on. Equal keys are one record.

    Attributes:
        kind: "measurement", "kernel", "calibration".
        fingerprint: of the module or kernel.
        finish: the passes that ran before XLA's backend; "" if not applicable.
        flags: the XLA flags that affect the result, as canonical text.
        target: compile target, such as "cpu".
        machine: short hash of the machine.
        variant: canonical JSON of everything else: baseline, seed, threads, place.

    Raises:
        StoreError: a field is not a string, or `kind` is empty.
    """

    kind: str
    fingerprint: str
    finish: str
    flags: str
    target: str
    machine: str
    variant: str = ""

    def __post_init__(self) -> None:
        try:
            "".join(key_row(self)).encode()
        except (TypeError, UnicodeEncodeError) as error:
            raise StoreError(
                f"every field of a key must be text, got {self!r}"
            ) from error
        if not self.kind:
            raise StoreError(
                "the kind of a key is empty; give one, such as 'measurement'"
            )


KEY_FIELDS = tuple(field.name for field in fields(RecordKey))
_ROW_FIELDS = (*KEY_FIELDS, "created", "body")
# The fields of a key, in order.
key_row: Callable[[RecordKey], tuple[str, ...]] = attrgetter(*KEY_FIELDS)


class Row(NamedTuple):
    """A stored record.

    Attributes:
        key: what the value depends on.
        created: seconds since the epoch.
        failed: whether the value has an "error" that is not None.
        body: the value, as JSON.
    """

    key: RecordKey
    created: float
    failed: bool
    body: str

    @classmethod
    def of(cls, key: RecordKey, value: Mapping[str, Any], created: float) -> Row:
        """The row of a value.

        Raises:
            StoreError: `created` or `value` is not valid.
        """
        if isinstance(created, bool) or not isinstance(created, (int, float)):
            raise StoreError(
                f"created must be seconds since the epoch, got {created!r}"
            )
        if not math.isfinite(created):
            raise StoreError(f"created must be a finite time, got {created!r}")
        body = encode(value)
        return cls(key, float(created), value.get("error") is not None, body)

    def columns(self) -> tuple[Any, ...]:
        """The fields of the key, the others, and the checksum."""
        columns = (*key_row(self.key), self.created, self.failed, self.body)
        return (*columns, checksum(columns))


def checksum(columns: Sequence[Any]) -> bytes:
    """64-bit checksum of a row's columns: key, created, failed, body.

    Raises:
        StoreError: a column is not of its type.
    """
    *texts, created, failed, body = columns
    digest = hashlib.blake2b(digest_size=8)
    try:
        for text in (*texts, created.hex(), f"{failed:d}", body):
            data = text.encode()
            digest.update(b"%d:" % len(data))
            digest.update(data)
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreError(f"a row has a column of the wrong type: {error}") from None
    return digest.digest()


def read_columns(columns: Sequence[Any]) -> Row:
    """The row with these columns, from `Row.columns`.

    Raises:
        StoreError: the checksum does not match.
    """
    *others, found = columns
    if found != checksum(others):
        raise StoreError("its checksum does not match")
    *fields, created, failed, body = others
    return Row(RecordKey(*fields), created, bool(failed), body)


def encode(value: Mapping[str, Any]) -> str:
    """A value as JSON. Tuples become lists.

    Raises:
        StoreError: not a dict, or it holds values that JSON cannot represent.
    """
    if not isinstance(value, dict):
        raise StoreError(
            f"a record's value must be a dict, got {type(value).__name__}; convert a "
            "dataclass with dataclasses.asdict"
        )
    try:
        _check(value, "value")
        try:
            return _ENCODER.encode(value)
        except ValueError:
            return _ENCODER.encode(_tagged(value))
    except RecursionError:
        raise StoreError("the value is nested too deeply or contains itself") from None


def decode(body: str) -> dict[str, Any]:
    """Reads the result of `encode`.

    Raises:
        StoreError: the text is not the JSON of a record.
    """
    try:
        value = json.loads(body, object_hook=_untag if _TAG_TEXT in body else None)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StoreError(f"the body must be a JSON object, got {body[:60]!r}")
    return value


def _check(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str) or key == _TAG:
                raise StoreError(
                    f"{where} has the key {key!r}; keys must be strings other than "
                    f"{_TAG!r}"
                )
            if type(each) not in _LEAVES:
                _check(each, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        if not _LEAVES.issuperset(map(type, value)):
            for i, each in enumerate(value):
                _check(each, f"{where}[{i}]")
    elif not isinstance(value, (str, int, float, type(None))):
        raise StoreError(
            f"{where} is {type(value).__module__}.{type(value).__qualname__}, which "
            "JSON cannot hold; give a dict, list, str, int, float, bool or None "
            "(array.tolist(), scalar.item())"
        )


def _tagged(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_TAG: repr(float(value))}
    if isinstance(value, dict):
        return {key: _tagged(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tagged(each) for each in value]
    return value


def _untag(value: dict[str, Any]) -> Any:
    return float(value[_TAG]) if value.keys() == {_TAG} else value


def make_row(columns: Mapping[str, Any]) -> Row:
    """Makes and checks a row from a file.

    Args:
        columns: the key's fields, `created` and `body`.

    Raises:
        StoreError: a field is absent or of the wrong type.
    """
    absent = [name for name in _ROW_FIELDS if name not in columns]
    if absent:
        raise StoreError(f"it has no {', '.join(absent)}")
    key = RecordKey(*(columns[name] for name in KEY_FIELDS))
    body = columns["body"]
    if not isinstance(body, str):
        raise StoreError(f"the body must be text, got {type(body).__name__}")
    return Row.of(key, decode(body), columns["created"])


def check_rows(
    path: Path, what: str, rows: Iterable[Mapping[str, Any] | str]
) -> Iterator[Row]:
    """Rows of a file.

    Args:
        path: of the file.
        what: unit of the file: "line" or "row".
        rows: fields for `make_row`, or lines of JSON.

    Raises:
        StoreError: a row is malformed; names the first one and the reason.
    """
    for number, row in enumerate(rows, 1):
        try:
            if not isinstance(row, str):
                yield make_row(row)
            elif row.strip():
                yield make_row(_line_columns(row))
        except StoreError as error:
            raise StoreError(
                f"{path}, {what} {number}: {error}; nothing was imported"
            ) from error


def _line_columns(line: str) -> dict[str, Any]:
    try:
        columns = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON: {error}") from error
    if not isinstance(columns, dict):
        raise StoreError(f"it must be a JSON object, got {line[:60]!r}")
    if not isinstance(columns.get("value"), dict):
        raise StoreError("its 'value' must be a JSON object")
    return {**columns, "body": json.dumps(columns["value"])}


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of a .jsonl or .parquet file, in order.

    Raises:
        OSError: the file cannot be read.
        StoreError: a row is malformed; names the first one and the reason.
        ImportError: Parquet without pyarrow.
    """
    if path.suffix == ".parquet":
        return check_rows(path, "row", _parquet_rows(path))
    return check_rows(path, "line", _lines(path))


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        try:
            yield from file
        except UnicodeDecodeError as error:
            raise StoreError(f"{path} is not UTF-8 text: {error}") from error


def write_rows(path: Path, rows: Iterable[Row], numbers: Mapping[str, str]) -> int:
    """Writes a .jsonl or .parquet file atomically.

    Args:
        path: replaced if it exists.
        rows: in the order of the file.
        numbers: for a Parquet file, the additional columns and their types.

    Returns:
        The number of rows.

    Raises:
        OSError: the file cannot be written.
        ImportError: Parquet without pyarrow.
    """
    with replacing(path) as draft:
        if path.suffix == ".parquet":
            return _write_parquet(draft, rows, numbers)
        return _write_lines(draft, rows)


def _write_lines(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            key = dict(zip(KEY_FIELDS, key_row(row.key), strict=True))
            start = json.dumps({**key, "created": row.created})
            file.write(f'{start[:-1]}, "value": {row.body}}}\n')
            count += 1
        _sync(file.fileno())
    return count


def _sync(descriptor: int) -> None:
    # A rename may reach the disk before the contents.
    with contextlib.suppress(OSError):
        os.fsync(descriptor)


def number_columns(values: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Types ("int64" or "float64") of the numbers at the top level of values, by name.

    Includes names that are numbers or None in every value; at most the 64 most
    frequent.
    """
    counts: Counter[str] = Counter()
    floats: set[str] = set()
    excluded = set(_ROW_FIELDS)
    for value in values:
        for name, each in value.items():
            if isinstance(each, bool) or not isinstance(each, (int, float, type(None))):
                excluded.add(name)
            elif each is not None:
                counts[name] += 1
                if not isinstance(each, int) or each not in _INT64:
                    floats.add(name)
    names = sorted(counts.keys() - excluded, key=lambda name: (-counts[name], name))
    return {
        name: "float64" if name in floats else "int64"
        for name in sorted(names[:_MAX_NUMBER_COLUMNS])
    }


def _import_pyarrow() -> Any:
    with needed_by("Parquet, unlike .jsonl,", "pyarrow", "store"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def _write_parquet(path: Path, rows: Iterable[Row], numbers: Mapping[str, str]) -> int:
    pa = _import_pyarrow()
    schema = pa.schema(
        [(name, pa.string()) for name in KEY_FIELDS]
        + [("created", pa.float64()), ("body", pa.string())]
        + [(name, getattr(pa, type_)()) for name, type_ in numbers.items()]
    )
    count = 0
    remaining = iter(rows)
    with pa.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(remaining, _GROUP_ROWS)):
            columns: list[list[Any]] = [
                *map(list, zip(*(key_row(row.key) for row in group), strict=True)),
                [row.created for row in group],
                [row.body for row in group],
            ]
            values = [decode(row.body) for row in group] if numbers else []
            for name, type_ in numbers.items():
                convert = int if type_ == "int64" else _float
                column = [value.get(name) for value in values]
                columns.append([None if x is None else convert(x) for x in column])
            arrays = [
                pa.array(column, field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(group)
    with path.open("rb") as file:
        _sync(file.fileno())
    return count


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    pa = _import_pyarrow()
    path.stat()
    try:
        with pa.parquet.ParquetFile(path) as file:
            names = [name for name in _ROW_FIELDS if name in file.schema_arrow.names]
            for batch in file.iter_batches(_GROUP_ROWS, columns=names):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise StoreError(
            f"{path} is not a Parquet file, or is damaged: {error}"
        ) from error
