"""What goes wrong, in words."""

from __future__ import annotations

import os
import shutil
import subprocess

LACKING = 3
"""perturb's exit code where the kernel lacks something."""


class Error(Exception):
    """perturb said no, and why."""


class Missing(Error):
    """There can be no emulated networks here: no perturb, no root, or a kernel that lacks something."""


class CommandError(subprocess.CalledProcessError):
    """A command on a host failed. Unlike its base, it shows what the command said."""

    def __str__(self) -> str:
        parts = [super().__str__()]
        for name, said in (("standard output", self.stdout), ("standard error", self.stderr)):
            words = said.decode(errors="replace") if isinstance(said, bytes) else said or ""
            if words.strip():
                parts.append(f"{name}:\n{words.rstrip()}")
        return "\n".join(parts)


def executable() -> str:
    """Where perturb is: what PERTURB_BIN names, else on PATH."""
    named = os.environ.get("PERTURB_BIN")
    found = shutil.which(named or "perturb")
    if found is None:
        place = f"PERTURB_BIN={named} is no program" if named else "there is no program `perturb` on PATH"
        raise Missing(f"{place}: install perturb, or let PERTURB_BIN name it")
    return os.path.abspath(found)


def refusal(code: int, said: str) -> Error:
    """Why `perturb run` ended before its hosts were there."""
    words = without_name(said) or f"perturb run ended with exit code {code} and said nothing"
    not_root = "needs root" in words or "(os error 1)" in words
    return (Missing if code == LACKING or not_root else Error)(words)


def without_name(said: str) -> str:
    """What perturb said, without its name before each message."""
    return "\n".join(line.removeprefix("perturb: ") for line in said.strip().splitlines())
