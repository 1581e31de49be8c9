"""A network ends with its Python, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support import leaves_nothing

# A job in the background starts with SIGINT ignored, and hands that on.
SCRIPT = """
import signal, perturb
signal.signal(signal.SIGINT, signal.default_int_handler)
with perturb.network({"version": 1, "latency": "20ms"}) as net:
    print(net.id, *(host.run(["readlink", "/proc/self/ns/net"]).stdout.strip() for host in net), flush=True)
    net["h1"].popen(["sleep", "4713"])
    net["h2"].run(["sleep", "4713"])
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left(sent: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as python:
        assert python.stdout is not None and python.stderr is not None
        identifier, *hosts = python.stdout.readline().split()
        assert len(hosts) == 2
        python.send_signal(sent)
        try:
            python.wait(timeout=30)
        finally:
            python.kill()
        leaves_nothing(int(identifier.removeprefix("run-")), hosts)
        said = python.stderr.read()
    assert python.returncode == -sent, said
    # Ctrl-C is Python's own error, to which the missing traffic is a note.
    assert ("KeyboardInterrupt" in said and "no packet crossed" in said) == (sent == signal.SIGINT), said
