# SPDX-License-Identifier: Apache-2.0
"""Files that take the place of others at their end."""

from __future__ import annotations

import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from hloenv._files import read_bytes, replacing


def write(path):
    with replacing(path) as draft:
        draft.write_text("new")


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    write(path)
    assert path.read_text() == "new"
    link = tmp_path / "link"
    link.symlink_to(path)
    write(link)
    assert not link.is_symlink()


def test_a_pipe_stays_and_gets_the_contents(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, link):
        with ThreadPoolExecutor(1) as reader:
            found = reader.submit(pipe.read_text)
            write(path)
            assert found.result(timeout=60) == "new"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_link_to_an_open_file_stays(tmp_path):
    """As /dev/stdout, where the output goes to a file."""
    link = tmp_path / "stdout"
    with (tmp_path / "out").open("w") as file:
        file.write("before ")
        file.flush()
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        write(link)
        assert link.is_symlink()
    assert (tmp_path / "out").read_text() == "before new"


def test_a_socket_is_not_replaced(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        with pytest.raises(OSError, match="socket"):
            write(path)
        assert stat.S_ISSOCK(path.stat().st_mode)


def test_a_folder_is_not_replaced(tmp_path):
    with pytest.raises(IsADirectoryError, match=f"cannot write {tmp_path}: it is a"):
        write(tmp_path)


@pytest.mark.parametrize("filename", [None, "draft"])
def test_an_error_names_the_file_that_was_to_be_written(tmp_path, filename):
    path = tmp_path / "a"

    def fail():
        with replacing(path) as draft:
            raise OSError(28, "No space left on device", filename and str(draft))

    with pytest.raises(OSError, match="No space left on device: ") as caught:
        fail()
    assert caught.value.filename == str(path)


def test_other_errors_keep_their_file(tmp_path):
    def fail():
        with replacing(tmp_path / "a"):
            (tmp_path / "b").read_text()

    with pytest.raises(FileNotFoundError) as caught:
        fail()
    assert str(caught.value.filename) == str(tmp_path / "b")


def test_reading_a_folder_names_it(tmp_path):
    with pytest.raises(IsADirectoryError) as caught:
        read_bytes(tmp_path, max_bytes=10)
    assert str(caught.value.filename) == str(tmp_path)


def test_reading_a_pipe_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a regular file"):
        read_bytes(tmp_path / "pipe", max_bytes=10)
