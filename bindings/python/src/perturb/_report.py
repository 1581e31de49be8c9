"""What a report says against the network that it is of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def against(report: Mapping[str, Any], said: str, expect_traffic: bool, allow_faults: bool) -> Iterator[str]:
    """What speaks against what was seen, in words; `said` is what perturb said itself."""
    faults = report.get("faults") or []
    if faults and not allow_faults:
        places = ", ".join(f"{fault['packets']} packets: {fault['place']}" for fault in faults)
        yield f"the network was not what the profile says ({places}), so do not trust the result:\n{said}"
    if expect_traffic and not report["balance"]["captured"]:
        yield (
            "no packet crossed the emulated network, so it had no part in the result: let a host talk to another one, by its "
            f"name or address{_instead(report['events'])}; expect_traffic=False allows it"
        )


def _instead(events: Mapping[str, int]) -> str:
    """Where the packets may have been instead. Each host counts them."""
    why = []
    if events.get("paused"):
        why.append("it was paused meanwhile")
    if events.get("unmatched"):
        why.append("packets matched no class of the profile")
    return f" ({', '.join(why)})" if why else ""
