"""Networks inside of `with`, against the real perturb."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import perturb
import pytest
from support import LATENCY, leaves_nothing, namespace, number, round_trip, wait


def test_packets_take_as_long_as_the_profile_says_and_changes_take_effect() -> None:
    with perturb.network(LATENCY, hosts=3) as net:
        assert [host.name for host in net] == ["h1", "h2", "h3"]
        assert 39.9 < round_trip(net["h1"], "h3") < 55
        assert 39.9 < round_trip(net["h3"], net["h2"].address) < 55
        assert 39.9 < round_trip(net["h3"], net["h2"].address6) < 55
        with net.events() as events:
            net.set(latency="50ms")
            assert "latency: 50ms" in net.profile()
            assert 99.9 < round_trip(net["h1"], "h3") < 125
            # One direction alone.
            net.set("out", latency="5ms")
            assert 54.9 < round_trip(net["h1"], "h3") < 75
            net.pause()
            assert round_trip(net["h1"], "h3") < 20
            assert net.status()["paused"] is True
            net.resume()
            assert 54.9 < round_trip(net["h1"], "h3") < 75
            said = [event.message for event in islice(events, 4)]
        assert said[0] == said[1] and "profile was changed" in said[0], said
        assert "paused" in said[2] and "resumed" in said[3], said
    # Eight requests with their answers, seven times. What passed meanwhile was counted at either host.
    assert net.report is not None
    assert net.report["balance"]["captured"] == 2 * 8 * 6
    assert net.report["events"]["paused"] == 2 * 2 * 8
    assert net.report["faults"] == []


def test_a_change_names_servers_unless_there_is_one() -> None:
    with perturb.network("mobile-lte", expect_traffic=False) as net:
        with pytest.raises(perturb.Error, match=re.escape('the servers are up, down: say which, such as net.set("up", latency=')):
            net.set(latency="80ms")
        # A server that no class names would change nothing.
        with pytest.raises(perturb.Error, match="there is no server uo, but up, down"):
            net.set("uo", latency="80ms")
        with pytest.raises(perturb.Error, match=r"(?s)`\"80\"` has no unit.*20ms"):
            net.set("up", latency="80")
        with pytest.raises(TypeError, match="nothing to set"):
            net.set("up")
        assert "80" not in net.profile()
        net.set("up", "down", latency="80ms", jitter=None)
        assert net.profile().count("latency: 80ms") == 2
        assert "jitter" not in net.profile()
        net.patch({"servers": {"down": {"bandwidth": "1Mbit/s"}}})
        assert "bandwidth: 1Mbit/s" in net.profile()


def test_a_command_is_a_completed_process() -> None:
    with perturb.network(LATENCY, expect_traffic=False) as net:
        host = net["h2"]
        done = host.run(["sh", "-c", "hostname; cat; echo $KEY $PWD"], input="in\n", env={**os.environ, "KEY": "v"}, cwd="/usr")
        assert (done.returncode, done.stdout) == (0, "h2\nin\nv /usr\n")
        assert host.run("cat", text=False).stdout == b""
        assert host.run("cat", text=False, input=b"\xff").stdout == b"\xff"
        assert host.run("exit 3", check=False).returncode == 3
        assert host.run(["no-such-program"], check=False).returncode == 127
        with pytest.raises(perturb.CommandError, match=r"(?s)exit 3 \(on h2\).* 3\..*standard output:\na\n.*error:\nb") as caught:
            host.run("echo a; echo b >&2; exit 3")
        assert isinstance(caught.value, subprocess.CalledProcessError)
        assert caught.value.returncode == 3
        with pytest.raises(KeyError, match="there is no host h3: there are h1, h2"):
            net["h3"]


def test_a_command_that_is_late_ends_with_all_that_it_started() -> None:
    with perturb.network(LATENCY, expect_traffic=False) as net:
        begin = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            net["h1"].run("echo begun; sleep 4711 & wait", timeout=1)
        assert time.monotonic() - begin < 20
        assert str(caught.value.stdout) == "begun\n"
        wait("the other one ends", lambda: "sleep 4711" not in net["h1"].run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout)


def test_many_threads_run_commands() -> None:
    with perturb.network(LATENCY, hosts=4) as net, ThreadPoolExecutor(8) as pool:
        pairs = [(f"h{one}", f"h{other}") for one in range(1, 5) for other in range(1, 5) if one != other]
        times = list(pool.map(lambda pair: round_trip(net[pair[0]], pair[1]), pairs))
    assert all(39.9 < time < 100 for time in times), times


def test_two_networks_know_nothing_of_each_other() -> None:
    slow = {"version": 1, "latency": "60ms"}
    with perturb.network(LATENCY) as one, perturb.network(slow, hosts=3) as two:
        assert one.id != two.id
        assert 39.9 < round_trip(one["h1"], "h2") < 55
        assert 119.9 < round_trip(two["h1"], "h2") < 140
        with pytest.raises(perturb.CommandError):
            one["h1"].run(["ping", "-c", "1", "-W", "1", two["h3"].address])
        assert one.status()["balance"]["captured"] < two.status()["balance"]["captured"] + 4


def test_the_end_ends_everything() -> None:
    with perturb.network(LATENCY, expect_traffic=False) as net:
        run, hosts = number(net), [namespace(host) for host in net]
        assert len(set(hosts)) == 2
        server = net["h2"].popen(["sleep", "4712"])
        net["h1"].run("setsid sleep 4712 >&- 2>&- &")
        with pytest.raises(perturb.Error, match="started already"):
            net.start()
    assert server.wait(timeout=5) == 128 + signal.SIGKILL
    leaves_nothing(run, hosts)
    with pytest.raises(perturb.Error, match="has ended: use it inside of `with`"):
        net["h1"]
    with pytest.raises(perturb.Error, match="has not been started"):
        perturb.network(LATENCY)["h1"]


def test_a_forked_process_leaves_its_parents_network_alone() -> None:
    with perturb.network(LATENCY) as net:
        child = os.fork()
        if child == 0:
            try:
                net.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert 39.9 < round_trip(net["h1"], "h2") < 55
