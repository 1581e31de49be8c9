"""The pytest plugin, in pytests of its own."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import pytest

# Installed, the plugin is found by its entry point.
PLUGIN = [] if entry_points(group="pytest11", name="perturb") else ["-p", "perturb.pytest_plugin"]


def pytest_says(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile("import pytest, perturb\n" + tests)
    return pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", "--strict-markers", "-v", *options)


def test_a_marker_gives_a_network_of_each_profile(pytester: pytest.Pytester) -> None:
    result = pytest_says(
        pytester,
        """
@pytest.mark.perturb("mobile-lte", {"version": 1, "name": "own", "latency": "1ms"}, hosts=3)
@pytest.mark.parametrize("host", ["h2"])
def test_it(network, host):
    network["h3"].run(["ping", "-c", "1", host])
    assert ("up:" in network.profile()) == (network.status()["servers"][0]["name"] == "up")

@pytest.mark.perturb("mobile-lte")
def test_nothing():
    "A marker alone makes no network."
""",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines_random(["*::test_it?*mobile-lte*PASSED*", "*::test_it?*own*PASSED*"])


def test_a_network_without_traffic_is_an_error_once(pytester: pytest.Pytester) -> None:
    result = pytest_says(
        pytester,
        """
@pytest.mark.perturb("simple")
def test_silent(network): pass

@pytest.mark.perturb("simple")
def test_failed(network): assert network is None

@pytest.mark.perturb("simple", expect_traffic=False)
def test_allowed(network): pass

def test_made(perturb_network):
    net = perturb_network("simple", hosts=3)
    other = perturb_network("simple", expect_traffic=False)
    net["h1"].run(["ping", "-c", "1", "h3"])
""",
    )
    # What passed is an error in the end; what failed is not told twice.
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(["* ERROR at teardown of test_silent*", "no packet crossed *"])


def test_a_class_may_share_a_network(pytester: pytest.Pytester) -> None:
    result = pytest_says(
        pytester,
        """
seen = []

@pytest.mark.perturb("simple", {"version": 1, "latency": "1ms"}, scope="class")
class TestShared:
    def test_one(self, network):
        seen.append(network.id)
        network["h1"].run(["ping", "-c", "1", "h2"])

    def test_two(self, network):
        seen.append(network.id)

def test_them():
    assert len(seen) == 4 and len(set(seen)) == 2, seen
""",
    )
    result.assert_outcomes(passed=5)


def test_mistakes_are_taught(pytester: pytest.Pytester) -> None:
    result = pytest_says(pytester, "def test_it(network): pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the fixture `network` is for tests with a marker: @pytest.mark.perturb*"])
    result = pytest_says(pytester, "@pytest.mark.perturb(hosts=3)\ndef test_it(network): pass\n")
    result.stdout.fnmatch_lines(["*the marker `perturb` names no profile*"])
    result = pytest_says(pytester, "def test_it(): pass\n", "-o", "perturb_missing=maybe")
    result.stderr.fnmatch_lines(["*perturb_missing is `fail` or `skip`, not 'maybe'*"])


NEEDS = """
@pytest.mark.perturb("simple")
def test_marked(network): pass

def test_made(perturb_network): perturb_network("simple")
"""


@pytest.mark.parametrize("option", [None, "fail", "skip"])
def test_without_perturb_tests_fail_unless_they_are_to_be_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, option: str | None
) -> None:
    monkeypatch.setenv("PERTURB_BIN", "/no/such/perturb")
    result = pytest_says(pytester, NEEDS, "-rs", *([] if option is None else ["-o", f"perturb_missing={option}"]))
    if option == "skip":
        result.assert_outcomes(skipped=2)
    else:
        result.assert_outcomes(errors=1, failed=1)
    result.stdout.fnmatch_lines(["*PERTURB_BIN=/no/such/perturb is no program*"])


def test_without_privileges_they_are_missing_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest, perturb\n" + NEEDS)
    # Neither root nor user namespaces: the kernel counts those for each one around them.
    none_left = "echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all \"$@\""
    none = ["unshare", "--user", "--map-root-user", "sh", "-c", none_left, "sh"]
    words = [*none, sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", "-rs", "-o", "perturb_missing=skip"]
    result = pytester.run(*words)
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*sysctl -w user.max_user_namespaces*"])


def test_a_mistake_in_the_profile_is_never_skipped(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.mark.perturb("nosuch")
def test_it(network): pass
"""
    result = pytest_says(pytester, tests, "-o", "perturb_missing=skip")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*perturb.*Error: there is no file `nosuch`*"])
