"""The API of an emulation: HTTP over its Unix socket (packaging/perturb-api.json)."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ._errors import Error

PATIENCE = 30.0
"""How long an answer may take, seconds: a change waits for other commands up to 20 s."""


@dataclass(frozen=True)
class Event:
    """Something that perturb says of a network: when (seconds since 1970), `error`, `warn` or `info`, and what."""

    time: float
    level: str
    message: str


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("perturb", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(PATIENCE)
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise


class Api:
    """What may be asked of an emulation."""

    def __init__(self, path: str) -> None:
        self._path = path

    def status(self) -> dict[str, Any]:
        """What was counted so far."""
        report: dict[str, Any] = json.loads(self._ask("GET", "/v1/status"))
        return report

    def profile(self) -> str:
        """The profile in force."""
        return self._ask("GET", "/v1/profile").decode()

    def patch(self, patch: Mapping[str, Any]) -> None:
        """Changes a part of the profile: a JSON merge patch (RFC 7396)."""
        self._ask("PATCH", "/v1/profile", json.dumps(patch).encode(), "application/merge-patch+json")

    def pause(self, paused: bool) -> None:
        """Lets traffic pass untouched, or emulates again."""
        self._ask("POST", "/v1/pause" if paused else "/v1/resume")

    def events(self) -> Events:
        """What perturb says from now on."""
        return Events(*self._open("GET", "/v1/events"))

    def _ask(self, method: str, path: str, body: bytes | None = None, kind: str | None = None) -> bytes:
        connection, response = self._open(method, path, body, kind)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._silence(error) from error
        finally:
            connection.close()

    def _open(
        self, method: str, path: str, body: bytes | None = None, kind: str | None = None
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        connection = _Connection(self._path)
        try:
            connection.request(method, path, body, {"Content-Type": kind} if kind else {})
            response = connection.getresponse()
            if response.status >= 300:
                raise Error(_detail(response.read(), response.status))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._silence(error) from error
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _silence(self, error: Exception) -> Error:
        return Error(f"the network does not answer at {self._path} ({error!r}): it may have ended")


def _detail(body: bytes, status: int) -> str:
    """What problem+json says."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {status}: {body.decode(errors='replace')}"


class Events:
    """What perturb says of a network, until the network ends or this is closed."""

    def __init__(self, connection: _Connection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response

    def close(self) -> None:
        """Ends it."""
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        kind = ""
        for line in self._lines():
            # Server-sent events: `event: said`, then `data: …`; a line that begins with a colon only shows that it is there.
            key, _, value = line.partition(": ")
            if key == "event":
                kind = value
            elif key == "data" and kind == "said":
                said = json.loads(value)
                yield Event(said["time"], said["level"], said["message"])
            elif key == "data" and kind == "missed":
                raise Error(f"{value} events were missed: read them faster")

    def _lines(self) -> Iterator[str]:
        while True:
            try:
                line = self._response.readline()
            except (ConnectionError, http.client.IncompleteRead, ValueError):
                # The network has ended, or this is closed.
                return
            if not line:
                return
            yield line.decode().rstrip("\r\n")
