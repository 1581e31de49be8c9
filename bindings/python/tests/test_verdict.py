"""What is said of a network in the end, and of one that cannot be."""

from __future__ import annotations

import os
import signal
import subprocess

import perturb
import pytest
from support import LATENCY, number, round_trip


def test_no_traffic_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="no packet crossed the emulated network") as caught:
        with perturb.network(LATENCY) as net:
            # A host's words to itself cross nothing.
            round_trip(net["h1"], "h1")
            round_trip(net["h1"], "127.0.0.1")
    assert "expect_traffic=False" in str(caught.value)


@pytest.mark.parametrize(
    ("profile", "pause", "why"),
    [
        (LATENCY, True, "it was paused meanwhile"),
        (
            {
                "version": 1,
                "servers": {"s": {"latency": "20ms"}},
                "classes": [{"name": "c", "match": {"protocol": "udp"}, "egress": ["s"], "ingress": ["s"]}],
            },
            False,
            "packets matched no class of the profile",
        ),
    ],
)
def test_traffic_that_was_not_emulated_is_none(profile: perturb.Profile, pause: bool, why: str) -> None:
    with pytest.raises(AssertionError, match=rf"no packet crossed .*\({why}\)"):
        with perturb.network(profile) as net:
            if pause:
                net.pause()
            round_trip(net["h1"], "h2")


def test_faults_are_told() -> None:
    # 1,400 bytes take 11 ms, and nothing limits the queue but the horizon.
    profile = {"version": 1, "latency": "1ms", "bandwidth": "1Mbit/s", "horizon": "100ms"}
    flood = ["ping", "-q", "-c", "20", "-l", "20", "-s", "1400", "-W", "1", "h2"]
    with pytest.raises(AssertionError, match=r"(?s)\([0-9]+ packets: horizon\), so do not trust .*raise `horizon`"):
        with perturb.network(profile) as net:
            net["h1"].run(flood, check=False)
    with perturb.network(profile, allow_faults=True) as net:
        net["h1"].run(flood, check=False)
    assert net.report is not None
    assert [fault["place"] for fault in net.report["faults"]] == ["horizon"]


def test_an_error_inside_comes_first() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        with perturb.network(LATENCY):
            print(1 / 0)
    assert any("no packet crossed" in note for note in caught.value.__notes__)


def test_a_network_that_is_gone_says_so() -> None:
    with pytest.raises(AssertionError, match="the network ended before it was asked to"):
        with perturb.network(LATENCY) as net:
            round_trip(net["h1"], "h2")
            sleep = net["h1"].popen(["sleep", "60"])
            os.kill(number(net), signal.SIGKILL)
            assert sleep.wait(timeout=30) != 0
            with pytest.raises(perturb.Error, match="has ended by itself"):
                net["h1"].run(["true"])
            with pytest.raises(perturb.Error, match="has ended by itself"):
                net.set(latency="1ms")
    # Whoever comes next removes what the kernel does not.
    subprocess.run([os.environ["PERTURB_BIN"], "status"], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("profile", "hosts", "words"),
    [
        ("mobile-ltee", 2, "there is no file `mobile-ltee`, nor has perturb a profile of that name.*mobile-lte"),
        ({"version": 1, "latency": "20"}, 2, "latency: .*has no unit"),
        (LATENCY, 65, "65"),
    ],
)
def test_a_bad_profile_is_refused_in_perturbs_words(profile: perturb.Profile, hosts: int, words: str) -> None:
    with pytest.raises(perturb.Error, match=f"(?s){words}") as caught:
        with perturb.network(profile, hosts):
            raise AssertionError("there is no such network")
    assert not isinstance(caught.value, perturb.Missing)


def test_a_missing_perturb_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERTURB_BIN", "/no/such/perturb")
    with pytest.raises(perturb.Missing, match="PERTURB_BIN=/no/such/perturb is no program: install"):
        perturb.network(LATENCY).start()
    monkeypatch.delenv("PERTURB_BIN")
    monkeypatch.setenv("PATH", "/no/such")
    with pytest.raises(perturb.Missing, match="no program `perturb` on PATH"):
        perturb.network(LATENCY).start()
