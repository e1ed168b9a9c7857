# SPDX-License-Identifier: Apache-2.0
"""Export and import of records."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hloenv.errors import StoreError
from hloenv.measurement.store import RecordKey, Store
from support.stores import contents, exit_code, filled, forked, key, limit_file_sizes


def same(records: list[Any]) -> str:
    """Records in a form in which NaN equals itself."""
    return repr(records)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".sqlite"])
def test_exported_records_come_back_exactly(path, tmp_path, suffix):
    with filled(path) as store, Store(":memory:") as other:
        expected = same(contents(store))
        if suffix == ".sqlite":
            file = path
        else:
            file = tmp_path / f"records{suffix}"
            assert store.export(file) == 30
        assert other.import_(file) == (30, 0, 0)
        assert same(contents(other)) == expected
        assert other.info().counts == store.info().counts
        assert other.import_(file) == (0, 0, 30)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_empty_store_can_be_exported(store, tmp_path, suffix):
    file = tmp_path / f"records{suffix}"
    assert store.export(file) == 0
    assert store.import_(file) == (0, 0, 0)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_the_newer_record_wins(tmp_path, suffix):
    file = tmp_path / f"records{suffix}"
    with Store(":memory:") as theirs:
        for name in ("new", "newer", "older", "same"):
            theirs.put(key(name), {"by": "theirs"}, created=100.0)
        theirs.export(file)
    with Store(":memory:") as ours:
        for name, created in (("newer", 99.0), ("older", 101.0), ("same", 100.0)):
            ours.put(key(name), {"by": "ours"}, created=created)
        assert ours.import_(file) == (1, 1, 2)
        by = {each.fingerprint: value["by"] for each, _, value in ours.records()}
    assert by == {"fnew": "theirs", "fnewer": "theirs", "folder": "ours"} | {
        "fsame": "ours"
    }


def test_of_equal_keys_in_a_file_the_newest_wins(store, tmp_path):
    lines = []
    for n, created in enumerate((1.0, 3.0, 2.0)):
        with Store(":memory:") as one:
            one.put(key(), {"n": n}, created=created)
            one.export(tmp_path / "one.jsonl")
        lines.append((tmp_path / "one.jsonl").read_text())
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    assert store.import_(tmp_path / "all.jsonl") == (1, 0, 0)
    assert contents(store) == [(key(), 3.0, {"n": 1})]


def test_parquet_has_columns_for_numbers(store, tmp_path):
    import pyarrow.parquet

    store.put(key(0), {"n": 2**62, "x": 1, "mixed": 1, "kind": 5, "flag": True})
    store.put(key(1), {"n": None, "x": 0.5, "mixed": "a", "huge": 2**70})
    store.export(tmp_path / "records.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "records.parquet")
    assert table.column_names == [
        *("kind", "fingerprint", "finish", "flags", "target", "machine", "variant"),
        *("created", "body", "huge", "n", "x"),
    ]
    assert table.column("n").to_pylist() == [2**62, None]
    assert table.column("x").to_pylist() == [1.0, 0.5]
    assert table.column("huge").to_pylist() == [None, 2.0**70]
    assert table.column("kind").to_pylist() == ["measurement"] * 2
    assert json.loads(table.column("body")[0].as_py())["n"] == 2**62


def test_parquet_without_pyarrow_names_the_extra(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "there.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"hloenv\[store\]"):
        store.export(tmp_path / "records.parquet")
    with pytest.raises(ImportError, match=r"hloenv\[store\]"):
        store.import_(tmp_path / "there.parquet")
    assert [each.name for each in tmp_path.glob("*records*")] == []


def test_importing_the_store_loads_no_optional_package(run_child):
    child = run_child(
        "import sys, hloenv.measurement.store, hloenv.cli\nprint('pyarrow' in sys.modules)"
    )
    assert child.stdout == "False\n"


def test_a_failed_export_leaves_the_old_file(path, tmp_path):
    file = tmp_path / "records.jsonl"
    file.write_text("old")
    with Store(path) as store:
        store.put_many((key(i), {"text": "x" * 1000}) for i in range(300))

        def child() -> None:
            store.info()
            limit_file_sizes(100_000)
            with pytest.raises(OSError, match="File too large"):
                store.export(file)

        assert exit_code(forked(child)) == 0
        assert file.read_text() == "old"
        assert store.export(file) == 300
    assert {each.name for each in tmp_path.iterdir()} == {path.name, file.name}


def test_a_store_is_not_exported_onto_itself(tmp_path):
    with filled(tmp_path / "store.jsonl") as store:
        with pytest.raises(StoreError, match="the store itself"):
            store.export(tmp_path / "store.jsonl")
        assert store.info().records == 30


def line(**changes: Any) -> str:
    fields: dict[str, Any] = dict.fromkeys(RecordKey.__dataclass_fields__, "a")
    fields = {**fields, "created": 1.0, "value": {}, **changes}
    return json.dumps({k: v for k, v in fields.items() if v is not ...})


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "must be a JSON object"),
        (line(machine=...), "it has no machine"),
        (line(machine=1), "must be text"),
        (line(kind=""), "kind of a key is empty"),
        (line(created="yesterday"), "created must be .* got 'yesterday'"),
        (line(created=math.nan), "created must be .* got nan"),
        (line(created=True), "created must be .* got True"),
        (line(value=[1]), "'value' must be a JSON object"),
        (line(value={"x": {"$float": "big"}}), "not JSON"),
        (line(value={"x": {"$float": "1", "y": 1}}), "the key '\\$float'"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_is_imported(store, tmp_path, bad, said):
    file = tmp_path / "records.jsonl"
    file.write_text(f"{line()}\n\n{bad}\n{line()}\n")
    with pytest.raises(StoreError, match=f"records.jsonl, line 3: .*{said}"):
        store.import_(file)
    assert contents(store) == []
    store.put(key(), {})


def test_a_malformed_row_of_parquet_is_named(store, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    file = tmp_path / "records.parquet"
    store.put(key(), {})
    store.put(key(1), {})
    store.export(file)
    table = pyarrow.parquet.read_table(file)
    place = table.column_names.index("body")
    bad = table.set_column(place, "body", pa.array(["{}", None]))
    pyarrow.parquet.write_table(bad, file)
    with pytest.raises(StoreError, match="row 2: the body must be text, got NoneType"):
        store.import_(file)
    pyarrow.parquet.write_table(table.drop_columns(["machine", "body"]), file)
    with pytest.raises(StoreError, match="row 1: it has no machine, body"):
        store.import_(file)


def test_damaged_files_are_rejected(store, tmp_path):
    with filled(tmp_path / "other.sqlite") as other:
        other.export(tmp_path / "good.parquet")
    good = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "bad.parquet").write_bytes(good[: len(good) // 2])
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe{}")
    (tmp_path / "bad.sqlite").write_bytes(b"not a database" * 100)
    for name, said in (
        ("bad.parquet", "not a Parquet file"),
        ("bad.jsonl", "not UTF-8"),
        ("bad.sqlite", "not an SQLite file"),
    ):
        with pytest.raises(StoreError, match=f"{name} .*{said}"):
            store.import_(tmp_path / name)
    assert contents(store) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".sqlite"])
def test_an_absent_file_is_an_os_error(store, tmp_path, suffix):
    with pytest.raises(FileNotFoundError):
        store.import_(tmp_path / f"absent{suffix}")
    assert list(tmp_path.glob("absent*")) == []


def test_unknown_file_formats_are_rejected(store, tmp_path):
    with pytest.raises(StoreError, match=r"\.parquet, \.jsonl$"):
        store.export(tmp_path / "records.csv")
    with pytest.raises(StoreError, match=r"\.parquet, \.jsonl, \.sqlite$"):
        store.import_(tmp_path / "records.csv")


def test_a_store_on_a_read_only_medium_can_be_imported(store):
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "other.sqlite"
        filled(file).close()
        file.chmod(0o444)
        Path(name).chmod(0o555)

        def child() -> None:
            with Store(":memory:") as mine:
                if os.geteuid() == 0:
                    os.setuid(65534)
                assert mine.import_(file) == (30, 0, 0)

        assert exit_code(forked(child)) == 0
