"""The failures that were found at commit b903d3f, repeated with the command line of any checkout.

    git worktree add /tmp/earlier b903d3f
    python tools/earlier --source /tmp/earlier/src     # most of these fail
    python tools/earlier                               # here none may

Every case drives `dualgoal` as a user would, in processes of its own, with runs and data that the same checkout has
made. The table has a line per case: what was seen, and which test holds the repair. The status is 1 if anything failed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import cases  # noqa: E402 (found by the line above)
import files_and_runs  # noqa: E402
import lies  # noqa: E402
import machines  # noqa: E402
from bench import Bench  # noqa: E402

assert lies and files_and_runs and machines  # each adds its cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=HERE.parent.parent / "src", help="folder that holds `dualgoal`")
    parser.add_argument("--match", default="", help="only cases whose name contains this text")
    given = parser.parse_args()
    failed = 0
    print("| case | seen | held by |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="earlier-") as folder:
        bench = Bench(Path(folder), given.source.resolve())
        for case in cases.ALL:
            if given.match in case.name:
                seen = case.try_it(bench.fresh())
                failed += seen is not None
                print(f"| {case.name} | {seen or 'as it should be'} | `{case.held_by}` |", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
