"""A private host, and commands on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal, TypeAlias, overload

from ._errors import CommandError

Command: TypeAlias = "str | Sequence[str | os.PathLike[str]]"
"""A program with its arguments; a string is a line for the host's shell."""


class Host:
    """A private host of a network. Commands on it see its addresses and names, and this machine's files."""

    def __init__(
        self,
        name: str,
        addresses: tuple[str, str],
        prefix: Sequence[str],
        begun: Callable[[subprocess.Popen[Any]], None],
        check: Callable[[float], None],
    ) -> None:
        self.name = name
        """`h1`, `h2`, …: the other hosts find it by this name."""
        self.address, self.address6 = addresses
        self._prefix = prefix
        self._begun = begun
        self._check = check

    def __repr__(self) -> str:
        return f"<perturb host {self.name}, {self.address}>"

    @overload
    def run(
        self,
        command: Command,
        *,
        check: bool = True,
        text: Literal[True] = True,
        input: str | None = None,
        timeout: float | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]: ...

    @overload
    def run(
        self,
        command: Command,
        *,
        check: bool = True,
        text: Literal[False],
        input: bytes | None = None,
        timeout: float | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]: ...

    def run(
        self,
        command: Command,
        *,
        check: bool = True,
        text: bool = True,
        input: str | bytes | None = None,
        timeout: float | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[Any]:
        """Runs a command to its end, and captures what it prints.

        Unlike `subprocess.run`, it raises CommandError if the command fails, unless `check=False`; the streams are text, unless
        `text=False`; without `input`, standard input is empty. After `timeout` seconds the command and all that it started is
        killed, and `subprocess.TimeoutExpired` raised.
        """
        self._check(0)
        words = self._words(command)
        # A group of its own, so that what it started ends with it.
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=text,
            cwd=cwd,
            env=env,
            process_group=0,
        ) as process:
            try:
                out, err = process.communicate(input, timeout)
            except subprocess.TimeoutExpired as late:
                _kill(process)
                # What came before is in bytes, whatever the streams are.
                out, err = _as_asked(late.stdout, text), _as_asked(late.stderr, text)
                raise subprocess.TimeoutExpired(self._shown(command), late.timeout, out, err) from None
            except BaseException:
                _kill(process)
                raise
        if process.returncode:
            self._check(_may_be_gone(process.returncode, err))
            if check:
                raise CommandError(process.returncode, self._shown(command), out, err)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @overload
    def popen(self, command: Command, *, text: Literal[True] = True, **options: Any) -> subprocess.Popen[str]: ...

    @overload
    def popen(self, command: Command, *, text: Literal[False], **options: Any) -> subprocess.Popen[bytes]: ...

    def popen(self, command: Command, *, text: bool = True, **options: Any) -> subprocess.Popen[Any]:
        """Starts a command; options are those of `subprocess.Popen`. It ends with the network at the latest."""
        self._check(0)
        process: subprocess.Popen[Any] = subprocess.Popen(self._words(command), text=text, **options)
        self._begun(process)
        return process

    def _words(self, command: Command) -> list[str]:
        words = ["sh", "-c", command] if isinstance(command, str) else [os.fspath(word) for word in command]
        return [*self._prefix, self.name, "--", *words]

    def _shown(self, command: Command) -> str:
        words = command if isinstance(command, str) else " ".join(os.fspath(word) for word in command)
        return f"{words} (on {self.name})"


def _may_be_gone(code: int, said: str | bytes) -> float:
    """How long to wait for the end of `perturb run`, seconds, where a failure may come from it."""
    killed = code == 128 + signal.SIGKILL
    words = said if isinstance(said, str) else said.decode(errors="replace")
    by_perturb = words.startswith("perturb: ")
    return 2.0 if killed or (code == 1 and by_perturb) else 0.0


def _kill(process: subprocess.Popen[Any]) -> None:
    """Ends it, and its group. Who left the group holds the streams: nobody waits for that."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    streams: list[IO[Any] | None] = [process.stdin, process.stdout, process.stderr]
    for stream in streams:
        if stream is not None:
            # Unwritten input has nowhere to go.
            with contextlib.suppress(OSError):
                stream.close()


def _as_asked(said: bytes | str | None, text: bool) -> bytes | str | None:
    return said.decode(errors="replace") if text and isinstance(said, bytes) else said
