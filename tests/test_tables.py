"""Tables as data: how many runs each expands into, which of them are the same run, and what a part of one is."""

from collections import Counter

import pytest

from dualgoal import errors
from dualgoal.paper import tables
from dualgoal.runs import config

RUNS = {
    "state_gcivl": 78,
    "state_crl": 78,
    "state_gcfbc": 78,
    "pixel_gcivl": 42,
    "fusion": 4,
    "parameterization": 26,
    "direct": 12,
    "noise": 6,
    "lightsout": 4,
}
BEYOND = {"beyond": 13 * 6, "state_aware": 13 * 6, "beyond_images": 7 * 7}  # not in the paper


@pytest.fixture(scope="module")
def cells():
    return {name: tables.expand(name) for name in tables.TABLES}


def test_every_table_expands_into_the_papers_number_of_runs(cells):
    assert {name: len(found) for name, found in cells.items()} == RUNS | BEYOND
    assert sum(RUNS.values()) == 328
    assert sum(len(cell.seeds) for name in RUNS for cell in cells[name]) == 1624
    assert {len(cell.seeds) for cell in cells["state_gcivl"]} == {8}


def test_the_published_numbers_have_the_same_rows_and_columns(cells):
    for name, rows in tables.paper().items():
        printed = {(task, column) for task, row in rows.items() if task != "average" for column in row}
        assert {(c.task, c.column) for c in cells[name]} == printed


def test_equal_configurations_are_one_run(cells):
    early = {c.task: c for c in cells["fusion"] if c.column == "early"}
    orig = {c.task: c for c in cells["pixel_gcivl"] if c.column == "orig"}
    assert all(early[task].id == orig[task].id for task in early)
    again = {c.task: c for c in cells["beyond_images"] if c.column == "orig"}
    assert all(early[task].id == again[task].id for task in early)
    ids = Counter(cell.id for name, found in cells.items() for cell in found)
    # fusion/early twice; noise/dual is parameterization/inner on three tasks, whose 13 runs state_aware has too;
    # beyond_images repeats Orig and Dual
    assert len(ids) == 328 + sum(BEYOND.values()) - 2 - 3 - 13 - 14
    assert not {cell.id for cell in cells["direct"]} & {cell.id for cell in cells["parameterization"]}


def test_columns_of_two_tables_may_ask_for_the_same_run():
    column = lambda table, name: next(c for c in tables.get(table).columns if c.name == name)
    assert tables.same_run(column("parameterization", "dual_inner_product"), column("state_gcivl", "dual"))
    assert tables.same_run(column("fusion", "early"), column("pixel_gcivl", "orig"))
    assert not tables.same_run(column("fusion", "late"), column("pixel_gcivl", "orig"))


def test_noise_only_evaluates_again(cells):
    columns = {c.name: c for c in tables.get("state_gcivl").columns}
    assert all(tables.same_run(c, columns[c.name]) for c in tables.get("noise").columns)
    for cell in cells["noise"]:
        assert cell.config["goal_noise"] == 0 and cell.noise == (0.3 if "antmaze" in cell.task else 0.2)


def test_columns_change_what_they_say(cells):
    symmetric = next(c for c in cells["parameterization"] if c.column == "dual_symmetric").config
    direct, plain = (next(c for c in cells["direct"] if c.column == name).config for name in ("dual_direct", "dual"))
    late = next(c for c in cells["fusion"] if c.column == "late").config
    assert symmetric["rep"]["aggregation"] == "symmetric" and late["rep"]["fusion"] == "late"
    assert (direct["rep"]["learner"], direct["algo"]["direct"]) == ("ivl", True)
    assert (plain["rep"]["learner"], plain["algo"]["direct"]) == ("ivl", False)


def test_beyond_joins_dual_with_what_the_paper_did_not_run(cells):
    found = {(c.rep, c.algo) for c in cells["beyond"]}
    pairs = {("orig", "gciql"), ("dual", "gciql"), ("orig", "hiql"), ("hiql_phi", "hiql"), ("dual", "hiql")}
    assert found == pairs | {("dual", "daf")}
    others = {cell.id for name, runs in cells.items() if name != "beyond" for cell in runs}
    assert not any(cell.id in others for cell in cells["beyond"])
    published = next(c for c in cells["beyond"] if c.column == "hiql_phi_hiql" and "humanoidmaze-large" in c.task)
    assert published.config["rep"]["dim"] == 10 and published.config["algo"]["waypoint_steps"] == 100


def test_a_part_of_a_table():
    wanted = {"tasks": ["scene-play-v0"], "reps": ["orig", "dual"], "seeds": [0, 1], "steps": 2000, "episodes": 5}
    part = tables.expand("state_gcivl", **wanted)
    assert [(c.task, c.column, c.seeds) for c in part] == [("scene-play-v0", r, (0, 1)) for r in ("orig", "dual")]
    run = config.from_dict(part[1].config)
    assert (run.steps, run.eval_every, run.episodes, run.id) == (2000, 200, 5, part[1].id)
    assert len(tables.expand("parameterization", reps=["dual_symmetric"])) == 13
    assert len(tables.expand("parameterization", reps=["dual"])) == 26, "all columns of a representation"
    columns = lambda reps: {c.column for c in tables.expand("state_aware", reps=reps)}
    assert columns(["dual"]) == {"dual"}, "the name of a column is that column"
    assert columns(["dual_pair"]) == {"pair", "pair_trained_scaled"}


def test_lights_out_is_table_t8(cells):
    for cell in cells["lightsout"]:
        values = cell.config
        assert (values["lr"], values["discount"], values["batch_size"], values["tau"]) == (1e-4, 0.95, 1024, 0.005)
        assert values["algo"]["name"] == "dqn" and values["algo"]["hidden"] == [1024] * 4 and values["episodes"] == 15
        assert values["task"] == cell.task + "-ideal" * (cell.column == "dual") and values["rep"] == {
            "name": "orig",
            "fusion": "early",
        }
    assert len({cell.id for cell in cells["lightsout"]}) == 4
    assert tables.expand("lightsout", steps=1000)[0].config["eval_every"] == 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tables.expand("state_gcivil"), "did you mean 'state_gcivl'"),
        (lambda: tables.expand("direct", tasks=["puzzle-3x3-play-v0"]), "unknown task"),
        (lambda: tables.expand("direct", reps=["vib"]), "unknown representation in direct .*'dualgoal sweep'"),
        (lambda: tables.expand("lightsout", tauu=1), "tauu is not an option"),
    ],
)
def test_what_a_table_does_not_have_is_said(call, message):
    with pytest.raises(errors.UserError, match=message):
        call()


def test_state_aware_changes_one_thing_at_a_time(cells):
    rep = {c.column: c.config["rep"] for c in cells["state_aware"] if c.task == "cube-single-play-v0"}
    changed = lambda column, other: {name for name in rep[column] if rep[column][name] != rep[other].get(name)}
    assert changed("trained", "dual") == {"trained_by"} and changed("scaled", "dual") == {"normalize"}
    assert changed("trained_scaled", "dual") == {"trained_by", "normalize"}
    assert changed("pair", "dual") == changed("pair_trained_scaled", "trained_scaled") == {"name", "gated"}
    assert not rep["pair"]["gated"]
