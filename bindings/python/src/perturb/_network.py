"""A network, from its beginning to what is to be said of it in the end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, TypeAlias

from . import _report
from ._api import Api, Events
from ._errors import Error, executable, refusal, without_name
from ._host import Host

Profile: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
"""The name of a profile that perturb brings along, a file, or a profile as a dictionary."""

START = 120.0
"""How long the hosts may take to be there, seconds."""
END = 60.0
"""How long they may take to be gone: packets that are held leave first."""

# Prints whom the hosts know, and lasts until there is a line, or whoever would write it is gone.
KEEPER = r"cat /etc/hosts; printf '\0'; read line || :"

log = logging.getLogger("perturb")


def network(
    profile: Profile,
    hosts: int = 2,
    *,
    expect_traffic: bool = True,
    allow_faults: bool = False,
    as_root: bool = False,
    options: Sequence[str] = (),
) -> Network:
    """A network of private hosts `h1`, `h2`, … joined by a profile; it is there inside of `with`.

    In the end it raises AssertionError if no packet crossed it (unless `expect_traffic=False`), or if packets met what no
    profile asks for (unless `allow_faults=True`). Under sudo, commands belong to whoever called it, unless `as_root=True`.
    `options` go to `perturb run`: `["--pacer", "user"]`.
    """
    return Network(profile, hosts, expect_traffic, allow_faults, as_root, options)


class Network:
    """Private hosts joined by a profile. All their processes end with the network, and it ends with this process."""

    def __init__(
        self,
        profile: Profile,
        hosts: int,
        expect_traffic: bool,
        allow_faults: bool,
        as_root: bool,
        options: Sequence[str],
    ) -> None:
        self.hosts: tuple[Host, ...] = ()
        self.report: dict[str, Any] | None = None
        """What was counted, as `perturb status --json` has it, once the network has ended."""
        self._profile = profile
        self._count = hosts
        self._expect_traffic = expect_traffic
        self._allow_faults = allow_faults
        self._as_root = ["--as-root"] if as_root else []
        self._options = options
        self._run: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._owner = 0
        self._begun: weakref.WeakSet[subprocess.Popen[Any]] = weakref.WeakSet()

    def __enter__(self) -> Network:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            self.end()
        else:
            # The error comes first; what speaks against the network may explain it.
            for line in self.close():
                error.add_note(f"perturb: {line}")

    def __getitem__(self, name: str) -> Host:
        self._check()
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(f"there is no host {name}: there are {', '.join(host.name for host in self.hosts)}")

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def start(self) -> Network:
        """Makes the hosts. `with` does this."""
        if self._run is not None:
            raise Error("this network was started already: make another one")
        program = executable()
        self._said = tempfile.TemporaryFile()
        with self._file() as profile:
            self._run = subprocess.Popen(
                [program, "run", profile, "--hosts", str(self._count), "--report", "/dev/stdout"]
                + [*self._as_root, *self._options, "--", "sh", "-c", KEEPER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                bufsize=0,
                # Ctrl-C is for this process, which then ends it.
                start_new_session=True,
            )
            self._owner = os.getpid()
            try:
                known = self._known(self._run)
            except BaseException:
                self._stop(self._run)
                self._said.close()
                raise
        prefix = [program, "on", "--run", self.id, *self._as_root]
        names = [f"h{number}" for number in range(1, self._count + 1)]
        self.hosts = tuple(Host(name, known[name], prefix, self._begun.add, self._check) for name in names)
        return self

    def end(self) -> None:
        """Ends the network, and says what speaks against it. `with` does this."""
        __tracebackhide__ = True
        against = self.close()
        if against:
            raise AssertionError("\n".join(against))

    def close(self) -> list[str]:
        """Ends the network; what speaks against what was seen in it, if anything does."""
        run = self._run
        # A forked process ends nothing of its parent's.
        if run is None or run.stdin is None or run.stdin.closed or self._owner != os.getpid():
            return []
        written = self._stop(run)
        for process in list(self._begun):
            # Their hosts are gone; nobody else is to see zombies.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        said = self._words()
        if self._said is not None:
            self._said.close()
        if said:
            log.info("%s: %s", self.id, said)
        if run.returncode != 0 or not written:
            return [f"the network ended before it was asked to (exit code {run.returncode}): {said}"]
        report: dict[str, Any] = json.loads(written)
        self.report = report
        return list(_report.against(report, said, self._expect_traffic, self._allow_faults))

    @property
    def id(self) -> str:
        """Its name in `perturb status`."""
        return f"run-{self._live().pid}"

    def set(self, *servers: str, **values: Any) -> None:
        """Changes keys of servers while packets cross them: `net.set("up", latency="80ms")`. None takes a key back.

        Names may be left out if there is one server, or one for each direction because the profile has no `servers`.
        """
        if not values:
            raise TypeError('nothing to set: net.set("up", latency="80ms")')
        there = [str(server["name"]) for server in self.status()["servers"]]
        example = f'net.set("{there[0]}", {", ".join(f"{key}={value!r}" for key, value in values.items())})'
        if not servers:
            if len(there) > 1 and there != ["out", "in"]:
                raise Error(f"the servers are {', '.join(there)}: say which, such as {example}")
            servers = tuple(there)
        for server in servers:
            if server not in there:
                raise Error(f"there is no server {server}, but {', '.join(there)}: {example}")
        self.patch({"servers": {server: values for server in servers}})

    def patch(self, patch: Mapping[str, Any]) -> None:
        """Changes any part of the profile in force, by a JSON merge patch (RFC 7396)."""
        self._api().patch(patch)

    def profile(self) -> str:
        """The profile in force, as YAML."""
        return self._api().profile()

    def pause(self) -> None:
        """Lets traffic pass untouched until `resume`."""
        self._api().pause(True)

    def resume(self) -> None:
        """Emulates again."""
        self._api().pause(False)

    def status(self) -> dict[str, Any]:
        """What was counted so far, as `perturb status --json` has it."""
        return self._api().status()

    def events(self) -> Events:
        """What perturb says of the network from now on; an iterator that ends with the network."""
        return self._api().events()

    def _api(self) -> Api:
        self._check()
        return Api(f"/run/perturb/{self.id}/api")

    def _live(self) -> subprocess.Popen[bytes]:
        if self._run is None:
            raise Error("this network has not been started: use it inside of `with`")
        return self._run

    def _check(self, patience: float = 0) -> None:
        """Raises if the hosts are gone, or will be so soon."""
        run = self._live()
        if run.stdin is None or run.stdin.closed:
            raise Error("this network has ended: use it inside of `with`")
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(patience)
        if run.returncode is not None:
            raise Error(f"the network has ended by itself (exit code {run.returncode}): {self._words()}")

    @contextlib.contextmanager
    def _file(self) -> Iterator[str]:
        """The profile as `perturb run` takes it."""
        if isinstance(self._profile, (str, os.PathLike)):
            yield os.fspath(self._profile)
        else:
            # YAML has JSON in it.
            with tempfile.NamedTemporaryFile("w", prefix="profile-", suffix=".json") as file:
                json.dump(self._profile, file)
                file.flush()
                yield file.name

    def _known(self, run: subprocess.Popen[bytes]) -> dict[str, tuple[str, str]]:
        """Waits for the hosts; their addresses, by name."""
        assert run.stdout is not None
        deadline = time.monotonic() + START
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(run.stdout, selectors.EVENT_READ)
            while not text.endswith(b"\0"):
                if not selector.select(deadline - time.monotonic()):
                    raise Error(f"perturb run has made no hosts within {START:.0f} s: {self._words()}")
                more = os.read(run.stdout.fileno(), 1 << 16)
                if not more:
                    raise refusal(run.wait(), self._words())
                text += more
        known: dict[str, tuple[str, str]] = {}
        for line in text.decode().splitlines():
            address, *names = line.split("#")[0].split() or [""]
            for name in names:
                four, six = known.get(name, ("", ""))
                known[name] = (four, address) if ":" in address else (address, six)
        return known

    def _stop(self, run: subprocess.Popen[bytes]) -> bytes:
        """Ends `perturb run`, by ever harder means; its report."""
        written = b""
        for ask in (None, run.terminate, run.kill):
            if ask is not None:
                ask()
            try:
                written, _ = run.communicate(b"\n" if ask is None else None, timeout=END)
                break
            except subprocess.TimeoutExpired:
                log.warning("perturb run (process %d) does not end within %.0f s", run.pid, END)
        for stream in (run.stdin, run.stdout):
            if stream is not None:
                stream.close()
        return written

    def _words(self) -> str:
        """What `perturb run` has said."""
        said = self._said
        if said is None or said.closed:
            return ""
        # The offset is the writer's, too.
        return without_name(os.pread(said.fileno(), 1 << 20, 0).decode(errors="replace"))
