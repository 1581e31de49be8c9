"""The book's example runs as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_plugin import PLUGIN

PAGE = Path(__file__).parents[3] / "docs/howto/tests.md"


def test_the_example_runs(pytester: pytest.Pytester) -> None:
    _, *blocks = PAGE.read_text().split("```python\n")
    (example,) = (block.split("```")[0] for block in blocks)
    pytester.makepyfile(example)
    pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", "--strict-markers").assert_outcomes(passed=3)
