# SPDX-License-Identifier: Apache-2.0
"""The server: who gets an answer, and what malformed requests get."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from urllib.parse import urlsplit

import pytest

from hloenv.cli.explore import _redirect
from hloenv.errors import ArgumentError
from hloenv.explorer.server import MAX_REQUEST_BYTES, Server, _Requests
from support.browser import explore


class _Client:
    """Requests as a browser would not make them."""

    def __init__(self, url):
        self.split = urlsplit(url)
        self.token = self.split.path.strip("/")
        self.host = self.split.netloc

    def ask(self, path, *, method="GET", body=None, token=None, **headers):
        connection = http.client.HTTPConnection(self.host, timeout=60)
        token = self.token if token is None else token
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        if body is not None and "Content-Type" not in names:
            names["Content-Type"] = "application/json"
        connection.request(method, f"/{token}/{path}", body, names)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), data

    def post(self, path, value, **headers):
        return self.ask(path, method="POST", body=json.dumps(value), **headers)


@pytest.fixture
def client(server):
    return _Client(server.url)


def test_it_listens_on_the_loopback_interface_alone(server):
    split = urlsplit(server.url)
    assert split.hostname == "127.0.0.1"
    assert server._http.socket.getsockname()[0] == "127.0.0.1"


def test_two_servers_have_different_tokens(backend):
    first, second = Server(backend), Server(backend)
    first.close()
    second.close()
    assert urlsplit(first.url).path != urlsplit(second.url).path
    assert len(urlsplit(first.url).path) >= 32


def test_the_page_and_its_parts_are_served(client):
    for path, kind in (
        ("", "text/html"),
        ("explorer.js", "text/javascript"),
        ("explorer.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
    ):
        status, headers, data = client.ask(path)
        assert status == 200
        assert headers["Content-Type"].startswith(kind)
        assert data


@pytest.mark.parametrize("token", ["", "x", "0" * 32, "%00", "é".encode().hex()])
def test_there_is_nothing_without_the_token(client, token):
    for path in ("", "api/state", "explorer.js"):
        status, _, data = client.ask(path, token=token)
        assert status == 404
        assert client.token.encode() not in data


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": ""},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
    ],
)
def test_other_hosts_and_origins_are_refused(client, headers):
    for ask in (
        lambda: client.ask("api/state", **headers),
        lambda: client.post("api/undo", {}, **headers),
    ):
        status, _, _ = ask()
        assert status == 403


def test_the_own_origin_is_answered(client):
    status, _, data = client.ask("api/state", Origin=f"http://{client.host}")
    assert status == 200
    assert json.loads(data)["module"]["name"] == "small"


def test_the_page_may_load_nothing_from_elsewhere(client):
    _, headers, _ = client.ask("")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "../server.py",
        "..%2fserver.py",
        "static/../../session.py",
        "%2e%2e/page.py",
        "//etc/passwd",
        "index.html/..",
        "explorer.js%00",
        "schema.py",
        "api/",
        "api/decide",
        "api/__class__",
    ],
)
def test_only_the_page_s_files_are_served(client, path):
    status, _, data = client.ask(path)
    assert status == 404
    assert b"SPDX" not in data


def test_malformed_requests_are_errors_with_messages(client):
    cases = (
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"[" * 100_000, 400),
        (b'{"changes": 3}', 422),
        (b'{"changes": [[0]]}', 422),
        (b'{"changes": [[0, "1"]]}', 422),
        (b'{"changes": [[0, 99]]}', 422),
        (b'{"changes": [[true, 1]]}', 422),
        (b"{}", 422),
        (b"\xff\xfe", 400),
    )
    for body, expected in cases:
        status, _, data = client.ask("api/decide", method="POST", body=body)
        assert (body[:20], status) == (body[:20], expected)
        assert json.loads(data)["message"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("point", {"until": "fusion", "passes": ["no-such-pass"]}),
        ("point", {"until": "no-such-position", "passes": ["algsimp"]}),
        ("point", {"until": "", "passes": []}),
        ("point", {"until": "", "passes": [1]}),
        ("point", {"until": "fusion", "occurrence": 10**30, "passes": ["fusion"]}),
        ("start", {"kind": "shell"}),
        ("start", {"kind": "rank", "pairs": []}),
        ("start", {"kind": "rank", "pairs": [["0", 1]]}),
        ("start", {"kind": "compare", "first": "default", "second": "__init__"}),
        ("restore", {"log": [{"do": "eval"}]}),
        ("restore", {"log": "x"}),
        ("cancel", {"id": 99}),
        ("open", {"name": "x", "content": "this is not HLO"}),
        ("open", {"name": "x" * 1000, "content": ""}),
        ("apply", {}),
    ],
)
def test_wrong_actions_are_messages_and_change_nothing(client, path, value):
    before = json.loads(client.ask("api/state")[2])
    status, _, data = client.post(f"api/{path}", value)
    assert status == 422
    assert json.loads(data)["message"]
    after = json.loads(client.ask("api/state")[2])
    assert after == before


@pytest.mark.parametrize(
    "query", ["index=x", "index=1e3", "", "index=%00", "index=-5&choice=1"]
)
def test_wrong_queries_are_messages(client, query):
    status, _, data = client.ask(f"api/alternative?{query}")
    assert status == 422
    assert json.loads(data)["message"]


def test_a_form_of_another_page_cannot_act(client):
    body = json.dumps({"changes": []})
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ):
        status, _, _ = client.ask(
            "api/decide", method="POST", body=body, Content_Type=kind
        )
        assert status == 415


def _raw(client, text):
    host, port = client.host.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(65536).decode()


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Content-Length: {MAX_REQUEST_BYTES + 1}", 413),
        ("Content-Length: 9999999999999999999999", 413),
        ("Content-Length: -1", 411),
        ("Content-Length: x", 411),
        ("Transfer-Encoding: chunked", 411),
    ],
)
def test_the_size_of_a_request_is_limited(client, header, status):
    answer = _raw(
        client,
        f"POST /{client.token}/api/decide HTTP/1.1\r\nHost: {client.host}\r\n"
        f"Content-Type: application/json\r\n{header}\r\n\r\n",
    )
    assert answer.split()[1] == str(status)


@pytest.mark.parametrize(
    "text", ["\r\n\r\n", "GET\r\n\r\n", "\x00\x01\x02", "GET / HTTP/9.9\r\n\r\n"]
)
def test_noise_does_not_end_the_server(client, text):
    _raw(client, text)
    assert client.ask("")[0] == 200


def test_a_request_that_does_not_arrive_ends_its_connection(client, monkeypatch):
    monkeypatch.setattr(_Requests, "timeout", 0.3)
    host, port = client.host.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(
            f"POST /{client.token}/api/decide HTTP/1.1\r\nHost: {client.host}\r\n"
            "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{".encode()
        )
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.split()[1] == b"408"


def test_other_methods_are_not_there(client):
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert client.ask("api/state", method=method)[0] == 501


def test_a_weak_token_is_an_error(backend):
    for token in ("short", "a" * 15, "../" * 10, "a b" * 10, "é" * 20):
        with pytest.raises(ArgumentError, match="token"):
            Server(backend, token=token)


@pytest.mark.parametrize("words", [(), ("--time-limit", "5")])
def test_an_ended_command_leaves_no_files(small, tmp_path, words):
    small.save(tmp_path / "small.hlo")
    folder = tmp_path / "temporary"
    folder.mkdir()
    path = str(tmp_path / "small.hlo")
    with explore(path, "--no-store", *words, env={"TMPDIR": str(folder)}) as (_, run):
        assert list(folder.glob("hloenv-explorer-*"))
        if not words:
            run.terminate()
        assert run.wait(60) == (1 if words else 128 + signal.SIGTERM)
    assert not list(folder.glob("hloenv-explorer-*"))


def test_the_token_is_not_in_the_arguments_of_the_browser(tmp_path):
    url = _redirect("http://127.0.0.1:1/secret/", tmp_path)
    assert "secret" not in url
    (path,) = tmp_path.iterdir()
    assert path.as_uri() == url
    assert path.stat().st_mode & 0o777 == 0o600
    assert "url=http://127.0.0.1:1/secret/" in path.read_text()


def test_a_port_that_is_in_use_is_said(backend, server):
    port = int(server.url.split(":")[2].partition("/")[0])
    with pytest.raises(ArgumentError, match=f"cannot use port {port}"):
        Server(backend, port=port)
