"""What several tests use."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import perturb

LATENCY: Mapping[str, Any] = {"version": 1, "latency": "20ms"}
"""20 ms each way, and nothing else."""


def round_trip(host: perturb.Host, to: str, count: int = 8) -> float:
    """The least time to another host and back, ms."""
    said = host.run(["ping", "-c", str(count), "-i", "0.05", "-q", to]).stdout
    found = re.search(r"= ([0-9.]+)/", said)
    assert found is not None, said
    return float(found[1])


def number(net: perturb.Network) -> int:
    """The process number of its `perturb run`."""
    return int(net.id.removeprefix("run-"))


def namespace(host: perturb.Host) -> str:
    """The host's network namespace, as the kernel names it."""
    return host.run(["readlink", "/proc/self/ns/net"]).stdout.strip()


def members(namespace: str) -> list[int]:
    """The processes that are in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns/net") == namespace:
                found.append(int(process.name))
        except OSError:
            # It has ended.
            continue
    return found


def wait(what: str, holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)


def leaves_nothing(run: int, namespaces: list[str]) -> None:
    """Waits until nothing is left of a network."""
    wait("perturb run ends", lambda: not Path(f"/proc/{run}").exists())
    wait("its record goes", lambda: not Path(f"/run/perturb/run-{run}").exists())
    for name in namespaces:
        wait("nobody is in its hosts", lambda: not members(name))
