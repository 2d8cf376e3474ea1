"""A small slice of the campaign that docs/reliability.md records: the tool works, and finds nothing there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def campaign(*words: str) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(ROOT / "tools" / "campaign"), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the campaign forks its commands")
@pytest.mark.parametrize(
    ("words", "attacks"),
    [
        ("mutate --most 150 --seed 7", 150),
        ("kill --most 8 --targets import report", 8),
        ("faults --targets import", 8),
    ],
)
def test_a_slice_of_the_campaign_finds_nothing(words, attacks):
    assert campaign(*words.split()).startswith(f"{attacks} attacks, 0 failures")
