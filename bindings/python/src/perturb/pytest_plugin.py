"""The pytest plugin: the fixtures `network` and `perturb_network`, the marker `perturb`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from ._errors import Missing
from ._network import Network, Profile, network as make

NetworkFactory: TypeAlias = Callable[..., Network]
"""What `perturb_network` is: `perturb.network`, but what it gives has begun, and ends with the test."""

MARKER = "perturb"
MISSING = "perturb_missing"
ended_early = pytest.StashKey[bool]()
wishes = pytest.StashKey[dict[tuple[int, int], "Wish"]]()


@dataclass(frozen=True, eq=False)
class Wish:
    """A network that a marker asks for. One object for each, so that pytest knows it again in the next test of a class."""

    profile: Profile
    mark: pytest.Mark
    options: Mapping[str, Any] = field(default_factory=dict)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(MISSING, "perturb: `fail` or `skip` tests where there can be no emulated networks", default="fail")


def pytest_configure(config: pytest.Config) -> None:
    words = "(*profiles, hosts=2, scope=…, …): the fixture `network` is one of each profile in turn, as perturb.network makes it"
    config.addinivalue_line("markers", f"{MARKER}{words}")
    none: dict[tuple[int, int], Wish] = {}
    config.stash[wishes] = none
    if config.getini(MISSING) not in ("fail", "skip"):
        raise pytest.UsageError(f"{MISSING} is `fail` or `skip`, not {config.getini(MISSING)!r}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker(MARKER)
    if mark is None or "network" not in metafunc.fixturenames:
        return
    if not mark.args:
        raise pytest.UsageError(
            f'{metafunc.definition.nodeid}: the marker `{MARKER}` names no profile: @pytest.mark.{MARKER}("mobile-lte")'
        )
    options = dict(mark.kwargs)
    scope = options.pop("scope", None)
    known = metafunc.config.stash[wishes]
    params = [
        known.setdefault((id(mark), number), Wish(profile, mark, options)) for number, profile in enumerate(mark.args)
    ]
    metafunc.parametrize("network", params, indirect=True, scope=scope, ids=[label(profile) for profile in mark.args])


def label(profile: Profile) -> str | None:
    """How a profile is called in a test's name."""
    if isinstance(profile, Mapping):
        return str(profile.get("name", "profile"))
    return os.path.basename(os.fspath(profile)).removesuffix(".yaml")


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None:
        node: Any = item
        # A network of a class, a module or a session hears of it, too.
        while node is not None:
            node.stash[ended_early] = True
            node = node.parent


def begin(request: pytest.FixtureRequest, stack: ExitStack, net: Network) -> Network:
    """Begins a network, which ends with the stack."""
    try:
        net.start()
    except Missing as missing:
        if request.config.getini(MISSING) == "skip":
            pytest.skip(str(missing))
        raise
    stack.callback(finish, request, net)
    return net


def finish(request: pytest.FixtureRequest, net: Network) -> None:
    """Ends a network. A test that failed, or skipped itself, is not told that it sent nothing."""
    against = net.close()
    if against and not request.node.stash.get(ended_early, False):
        pytest.fail("\n".join(against), pytrace=False)


@pytest.fixture
def perturb_network(request: pytest.FixtureRequest) -> Iterator[NetworkFactory]:
    """Makes networks, as perturb.network does; they end with the test."""
    with ExitStack() as stack:

        def factory(profile: Profile, hosts: int = 2, **options: Any) -> Network:
            return begin(request, stack, make(profile, hosts, **options))

        yield factory


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """The network that the marker `perturb` asks for."""
    wish = getattr(request, "param", None)
    if not isinstance(wish, Wish):
        raise pytest.UsageError(
            f'the fixture `network` is for tests with a marker: @pytest.mark.{MARKER}("mobile-lte", hosts=3)'
        )
    with ExitStack() as stack:
        yield begin(request, stack, make(wish.profile, **wish.options))
