"""Emulated networks for tests: private hosts, joined by a profile of perturb.

    with perturb.network("mobile-lte", hosts=3) as net:
        net["h1"].run(["ping", "-c", "3", "h2"])
        net.set("up", latency="80ms")
"""

from ._api import Event, Events
from ._errors import CommandError, Error, Missing
from ._host import Command, Host
from ._network import Network, Profile, network

__all__ = [
    "Command",
    "CommandError",
    "Error",
    "Event",
    "Events",
    "Host",
    "Missing",
    "Network",
    "Profile",
    "network",
]
