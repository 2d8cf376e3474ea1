"""The Python of docs/theory.md runs and says what the page says."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).resolve().parents[1] / "docs" / "theory.md"


def test_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    finite, puzzle = ({}, {})
    exec(blocks[0], finite)
    assert np.abs(finite["achieved"] - finite["values"]).max() < 1e-10
    exec(blocks[1], puzzle)
    assert (puzzle["table"] == puzzle["same"]).all()
    distances = puzzle["lightsout_puzzle"].distance(puzzle["puzzle"], puzzle["starts"], puzzle["goals"])
    assert distances.tolist() == [4, 10, 14, 16, 20]
    assert len(blocks) == 2
