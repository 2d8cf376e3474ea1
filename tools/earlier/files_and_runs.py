"""JSON that is not what it should be, and bad runs among good ones."""

import json
import shutil
from collections.abc import Callable

from bench import TASK, TRAIN, Bench
from cases import case, refused
from lies import CELL, keep_checkpoints, planned

DEEP = "[" * 100_000


# Point 1: JSON --------------------------------------------------------------------------------------------------------

ONE_LINE = "test_hostile.py::test_what_is_not_quite_json_is_one_line"


def beside_data(text: str) -> Callable[[Bench], None]:
    def write(bench: Bench) -> None:
        shutil.copytree(bench.data, bench.here / "data")
        (bench.here / "data" / f"{TASK}.json").write_text(text)

    return write


def into(name: str, text: str, add: bool = False) -> Callable[[Bench], None]:
    def write(bench: Bench) -> None:
        with (bench.run / name).open("a" if add else "w", newline="") as file:
            file.write(text)

    return write


INFO = f"data info HERE/data --task {TASK}"
refused("TASK.json is 100,000 brackets, `data info`", ONE_LINE, INFO, beside_data(DEEP))
refused(
    "text for a table in TASK.json, `data info`",
    "test_data.py::test_a_wrong_type_in_the_record_is_one_line_that_names_file_and_field",
    INFO,
    beside_data('{"task": "x", "versions": "3.4"}'),
)
refused(
    "config.json is 100,000 brackets, `export`",
    ONE_LINE,
    "export RUN --out HERE/p.safetensors",
    into("config.json", DEEP),
)
JOURNAL = "test_store.py::test_a_damaged_journal_says_which_line"
ROW = '"seed": 0, "goal": 1, "task": 1, "episodes": 1, "successes": 1, "success": 1.0, "length": 1.0'
refused("`{}` in eval.jsonl, `train`", JOURNAL, TRAIN, into("eval.jsonl", "{}\n", add=True))
refused(
    "text for a step in eval.jsonl, `train`", JOURNAL, TRAIN, into("eval.jsonl", f'{{"step": "a", {ROW}}}\n', add=True)
)
refused("brackets in metrics.jsonl, `train`", JOURNAL, TRAIN, into("metrics.jsonl", DEEP + "\n", add=True))


@case("a carriage return in a row, `train`", "test_hostile.py::test_a_carriage_return_in_a_row_is_not_a_line")
def _(bench: Bench) -> str | None:
    first_row, rest = (bench.run / "metrics.jsonl").read_text().split("\n", 1)
    (bench.run / "metrics.jsonl").write_text(first_row.replace(", ", ",\r", 1) + "\n" + rest, newline="")
    keep_checkpoints(bench, 30, bench.run)
    return bench.call(TRAIN).done()


def text_for_sizes(bench: Bench) -> None:
    content = json.loads((bench.run / "config.json").read_text())
    for part in ("sizes", "dataset"):
        content[part] = {**content.get(part, {}), "observation_shape": "many", "action_dim": "many"}
    (bench.run / "config.json").write_text(json.dumps(content))


refused(
    "text for sizes in config.json, `export`",
    "test_store.py::test_a_damaged_config_names_the_field_and_the_rest_can_still_be_used",
    "export RUN --out HERE/p.safetensors",
    text_for_sizes,
)


@case(
    "`step-².json` among checkpoints, `export`",
    "test_store.py::test_a_sealed_checkpoint_that_holds_no_arrays_or_an_odd_name_is_one_line",
)
def _(bench: Bench) -> str | None:
    (bench.run / "checkpoints" / "step-².json").touch()
    return bench.call("export RUN --out HERE/p.safetensors").done()


# Point 2: a bad run among good ones -----------------------------------------------------------------------------------


@case(
    "NaN in a neighbour's config.json, `reproduce`",
    "test_reproduce.py::test_a_run_with_unreadable_rows_costs_only_itself",
)
def _(bench: Bench) -> str | None:
    planned(bench, 5)
    (out,) = {file.parent for file in (bench.here / "runs").rglob("config.json")}
    bad = out.with_name(f"{out.name}-too")
    bad.mkdir()
    (bad / "config.json").write_text('{"run": {"lr": NaN}}')
    (out / "config.json").unlink()  # so that the neighbours are looked at
    return bench.call(CELL).done()


@case("a row file that is none, `results`", "test_results.py::test_a_bad_row_file_costs_only_itself")
def _(bench: Bench) -> str | None:
    folder = bench.here / "rows" / "state_gcivl"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(DEEP)
    return bench.call("results --folder HERE/rows --out HERE/page.md").done()


@case("one bad run of two, `report`", "test_report.py::test_broken_directories_give_a_page_and_no_traceback")
def _(bench: Bench) -> str | None:
    shutil.copytree(bench.run, bench.here / "bad")
    (bench.here / "bad" / "config.json").write_text(DEEP)
    return bench.call("report RUN HERE/bad --out HERE/r.html").done()
