#!/usr/bin/env python3
"""What runs of `dualgoal lightsout` on a small board have learned, as rows for results/lightsout_*.json.

    python tools/lightsout_rows.py RUN ... > results/lightsout_3x3.json

One row for each seed of each run, at its last step: the share of all pairs of boards that it solves, and how far apart
it believes boards to be that differ in one light, for each light. `ignored` is the light for which that is least, and
`solved_without` the share of pairs that it solves if this light need not be right. `correlation` is that of learned and
exact distances over all pairs, `followed` the share of pairs that going where the learned distance is least solves.
"""

import json
import sys
from pathlib import Path
from typing import Any

from dualgoal.paper import lightsout_evaluation
from dualgoal.runs import config, policy


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of one run."""
    loaded = policy.load(path)
    run = loaded.run
    about = {
        "task": run.task,
        "rep": config.to_dict(run)["rep"],
        "hidden": list(run.algo.hidden),  # type: ignore[attr-defined]  # DQN's
        "batch_size": run.batch_size,
        "lr": run.lr,
        "tau": run.tau,
        "step": loaded.step,
    }
    details = loaded.facts.dataset.details
    about |= {name: details[name] for name in ("corner_presses",) if name in details}
    found = []
    for seed in run.seeds:
        learned, exact = lightsout_evaluation.one_light_apart(path, seed)
        solved = lightsout_evaluation.all_pairs(path, seed)
        lights = {"learned": [round(float(d), 3) for d in learned], "exact": [int(d) for d in exact]}
        ignored = int(learned.argmin())
        without = {"ignored": ignored, "solved_without": lightsout_evaluation.all_pairs(path, seed, ignored)}
        agreement, followed = lightsout_evaluation.learned_distance(path, seed)
        whole = {"correlation": round(agreement, 4), "followed": followed}
        found.append(about | {"seed": seed, "solved": solved} | lights | without | whole)
    return found


def main() -> None:
    found = [row for path in sys.argv[1:] for row in rows(Path(path))]
    print("[\n" + ",\n".join(json.dumps(row) for row in found) + "\n]")


if __name__ == "__main__":
    main()
