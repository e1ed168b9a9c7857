# SPDX-License-Identifier: Apache-2.0
"""The page's server, on the loopback interface, for one user.

The URL has a token; without it there is nothing. Requests must name this server as
their host, so that no other name can be rebound to it, and come from its own page:
other origins are refused. The page may load nothing but what this server sends.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .._json import finite
from ..errors import ArgumentError, HloEnvError
from .backend import Backend
from .routes import GET, POST
from .static_files import read_static

HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 64 << 20
_MIN_TOKEN = 16
_TIMEOUT_S = 60.0
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server:
    """Serves one backend; `start` returns at once.

    Attributes:
        url: of the page, with the token.
    """

    def __init__(self, backend: Backend, *, port: int = 0, token: str = "") -> None:
        """Binds the port.

        Args:
            backend: answers the requests.
            port: of the loopback interface; 0 for a free one.
            token: of the URL; "" for a random one.

        Raises:
            ArgumentError: the token is too short or is not of letters and digits, or
                the port cannot be used.
        """
        if token and not (
            token.isascii() and token.isalnum() and len(token) >= _MIN_TOKEN
        ):
            raise ArgumentError(
                f"the token must have at least {_MIN_TOKEN} letters and digits"
            )
        try:
            self._http = _Http(backend, port, token or secrets.token_hex(16))
        except OSError as error:
            raise ArgumentError(
                f"the server cannot use port {port} ({error.strerror}); give another "
                "one, or none for a free one"
            ) from error
        self._thread = threading.Thread(
            target=self._http.serve_forever, name="hloenv-explorer", daemon=True
        )
        self.url = f"http://{HOST}:{self._http.server_port}/{self._http.token}/"

    def start(self) -> None:
        """Answers requests from now on, in threads."""
        self._thread.start()

    def close(self) -> None:
        """Ends the server; the backend stays open."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, backend: Backend, port: int, token: str) -> None:
        self.backend = backend
        self.token = token
        super().__init__((HOST, port), _Requests)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the browser closed is no error."""


class _RequestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Requests(BaseHTTPRequestHandler):
    server: _Http
    server_version = "hloenv"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        """Answers a file of the page, or a question."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Answers an action."""
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the log would have the token."""

    def _answer(self, work: Any) -> None:
        try:
            path, query = self._checked_path()
            status, kind, body = work(path, query)
        except _RequestError as error:
            status, kind, body = error.status, "application/json", _error(error)
            self.close_connection = True
        except (HloEnvError, OSError) as error:
            status, kind, body = 422, "application/json", _error(error)
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _checked_path(self) -> tuple[str, dict[str, str]]:
        """The path after the token, and the query.

        Raises:
            _RequestError: the request is not of this server's own page.
        """
        host = self.headers.get("Host", "")
        if host.partition(":")[0] not in (HOST, "localhost"):
            raise _RequestError(403, "this server has another name")
        if self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            raise _RequestError(403, "requests of other origins are refused")
        is_link = self.headers.get("Sec-Fetch-Mode") == "navigate"
        site = self.headers.get("Sec-Fetch-Site", "none")
        if site not in ("same-origin", "none") and not is_link:
            raise _RequestError(403, "requests of other sites are refused")
        try:
            split = urlsplit(self.path)
            query = dict(parse_qsl(split.query, max_num_fields=20))
        except ValueError:
            raise _RequestError(400, "the URL is malformed") from None
        _, _, rest = split.path.partition("/")
        token, slash, path = rest.partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise _RequestError(404, "there is nothing here; use the URL as printed")
        if not slash:
            raise _RequestError(404, "the URL ends with a slash")
        return path, query

    def _get(self, path: str, query: Mapping[str, str]) -> tuple[int, str, bytes]:
        if path.startswith("api/"):
            return self._call(GET, path, query)
        found = read_static(path or "index.html")
        if found is None:
            raise _RequestError(404, "there is no such file")
        return 200, *found

    def _post(self, path: str, _: Mapping[str, str]) -> tuple[int, str, bytes]:
        if self.headers.get_content_type() != "application/json":
            raise _RequestError(415, "requests must be application/json")
        if self.headers.get("Transfer-Encoding"):
            raise _RequestError(411, "requests must have a Content-Length")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise _RequestError(411, "requests must have a Content-Length")
        if len(length) > 12 or int(length) > MAX_REQUEST_BYTES:
            raise _RequestError(413, f"the most is {MAX_REQUEST_BYTES} bytes")
        try:
            body = self.rfile.read(int(length))
        except OSError:
            raise _RequestError(408, "the request did not arrive in time") from None
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            raise _RequestError(400, "the request is not JSON") from None
        if not isinstance(given, dict):
            raise _RequestError(400, "the request must be a JSON object")
        return self._call(POST, path, given)

    def _call(
        self, handlers: Mapping[str, Any], path: str, given: Mapping[str, Any]
    ) -> tuple[int, str, bytes]:
        handler = handlers.get(path.removeprefix("api/"))
        if handler is None or not path.startswith("api/"):
            raise _RequestError(404, "there is no such request")
        return 200, "application/json", to_json(handler(self.server.backend, given))


def to_json(value: Any) -> bytes:
    """JSON; what is not finite is null."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(finite(value), allow_nan=False, separators=(",", ":"))
    return text.encode()


def _error(error: Exception) -> bytes:
    kind = type(error).__name__.removeprefix("_")
    return to_json({"error": kind, "message": str(error) or kind})
