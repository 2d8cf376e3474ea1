"""Joins of two images: the drawn puzzles, the three scores, what each join is made of, and the command."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import pages
from dualgoal.cli import parsing
from dualgoal.cli.experiments import Joins
from dualgoal.cli.main import main
from dualgoal.envs import lightsout_puzzle
from dualgoal.nets.encoders import Impala
from dualgoal.probes import joins, options, records, scores, worlds

BOARD = lightsout_puzzle.Puzzle(3, 3)
BUTTONS, LIGHTS_OUT = (worlds.World(name, BOARD) for name in ("buttons", "lightsout"))
ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "visual_puzzles.md").read_text()


def test_an_image_shows_its_board_under_the_arm():
    boards = jnp.asarray(BOARD.boards(np.array([0b101, 0b101])), jnp.float32)
    images = np.asarray(BUTTONS.draw(random.key(0), boards, jnp.array([[0, 0], [24, 24]])), float)
    middle = images[:, 4::8, 4::8].reshape(2, 9, 3)
    blue = middle[..., 2] > middle[..., 0]
    assert blue[1].tolist() == [True, False, True] + [False] * 6
    assert blue[0].tolist() == [False, False, True] + [False] * 6  # the arm is over the first light
    np.testing.assert_allclose(images[0, :7, :7], worlds.ARM_COLOUR, atol=15)
    assert 1 < (images[1] - images[1].round(-1)).std() < 5


@pytest.mark.parametrize("name", ["buttons", "lightsout"])
def test_the_distance_of_a_pair_is_exact(name):
    pairs = worlds.World(name, BOARD).pairs(random.key(3), 200)
    s, g = (BOARD.numbers(np.asarray(x)) for x in pairs.boards)
    presses = lightsout_puzzle.search(BOARD)[s ^ g]
    assert set(presses) >= {0, 3, 6} and (presses <= 6).mean() > 0.8
    expected = np.bitwise_count(s ^ g) if name == "buttons" else presses
    np.testing.assert_allclose(pairs.lights, expected / 9, atol=1e-6)
    dark = (np.asarray(pairs.s, float) < 90).all(-1)
    assert dark.any() == (name == "buttons") == bool(np.asarray(pairs.arm).any())


def test_half_of_the_pairs_show_one_board_and_the_arm_stays():
    pairs = BUTTONS.same_or_not(random.key(0), 20)
    same = (np.asarray(pairs.boards[0]) == np.asarray(pairs.boards[1])).all(-1)
    assert same.tolist() == [True] * 10 + [False] * 10
    assert not np.asarray(pairs.arm).any() and (np.asarray(pairs.s) != np.asarray(pairs.g)).any()  # noise


def test_following_exact_distances_solves_every_board():
    table = lightsout_puzzle.search(BOARD)
    goals = np.array([0, 77, 510])
    exact = table[np.arange(512)[None] ^ goals[:, None]]
    assert BOARD.solved_by(exact, goals) == 1
    one_button = BOARD.solved_by(np.zeros_like(exact), goals)  # always the first button: there, or one press away
    assert one_button == 2 / 512


def test_the_scores():
    rng = np.random.default_rng(0)
    a, b, noise = rng.normal(size=(3, 400))
    assert scores.slopes(0.25 * a - 2 * b + 7, a, b) == pytest.approx([0.25, -2])
    same, other = rng.integers(0, 9, 30) / 3, rng.integers(2, 12, 50) / 3
    brute = np.mean([(x > y) + 0.5 * (x == y) for x in other for y in same])
    assert scores.area_under_curve(same, other) == pytest.approx(brute)
    bits = rng.integers(0, 2, (600, 9))
    assert scores.linear_probe(bits @ rng.normal(size=(9, 12)) + 3, bits) == 1
    assert abs(scores.linear_probe(rng.normal(size=(600, 12)), bits) - 0.5) < 0.05


ENCODERS = {  # the input channels of each image encoder; those of `token` end in a map
    "early": [6], "late": [3, 3], "inner": [3, 3], "symmetric": [3, 3], "asymmetric": [3, 3],
    "one_inner": [3], "one_symmetric": [3], "one_asymmetric": [3], "one_late": [3], "one_difference": [3],
    "pair": [3, 6], "token": [],
}  # fmt: skip


@pytest.mark.parametrize("join", options.JOINS)
def test_what_a_join_is_made_of(join):
    agent = joins.agent_of(join, options.Options(hidden=(8,), dim=8))
    params = jax.eval_shape(lambda key: joins.fresh(agent, key), random.key(0))
    is_encoder = lambda x: isinstance(x, Impala)
    found = [x.stacks[0].first.w.shape[2] for x in jax.tree.leaves(params, is_leaf=is_encoder) if is_encoder(x)]
    assert sorted(found) == ENCODERS[join]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("joins") / "rows.json"


def words(file, *more):
    small = [
        "--world",
        "lightsout",
        "--size",
        "1x3",
        "--steps",
        "8",
        "--batch-size",
        "2",
        "--hidden",
        "8",
        "--dim",
        "8",
    ]
    return ["joins", "--out", str(file), "--joins", "one_symmetric", *small, *more]


class Stub:
    """Stands for a training whose result is known."""

    def __init__(self, join, seed, options):
        self.join, self.seed = join, seed

    def run(self, tell):
        return joins.Row(self.join, self.seed, (2, 4, 6, 8), (0.0,) * 4, (0.0,) * 4, 0.5, 0.5, 0.0)


def test_the_command_adds_rows_and_prints_them(file, capsys, monkeypatch):
    monkeypatch.setattr(scores, "AT_ONCE", 8)
    for name, value in {"PAIRS": 8, "PROBED": 8, "GOALS": 1}.items():
        monkeypatch.setattr(joins, name, value)
    assert main(words(file, "--seeds", "0")) == 0
    assert "one_symmetric, seed 0, step 8: slope" in capsys.readouterr().out
    row = records.read(file).rows[0]
    assert row.steps == (2, 4, 6, 8) and all(map(np.isfinite, (*row.lights, row.area, row.probe, row.solved)))
    first = json.loads(file.read_text())
    monkeypatch.setattr(records, "Fit", Stub)
    assert main(words(file, "--seeds", "0", "1", "--quiet")) == 0
    second = json.loads(file.read_text())
    assert second["rows"][0] == first["rows"][0], "what is there is not trained again"
    assert second["rows"][1]["seed"] == 1
    assert capsys.readouterr().out.splitlines() == records.table(records.read(file))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--lr", "0.5", "--steps", "12"], "its rows have another steps and lr; choose another --out"),
        (["--steps", "3"], "steps is 3; expected at least 4"),
        (["--joins", "erly"], "did you mean 'early'?"),
        (["--joins", "early", "inner", "--dim", "0"], "dim is 0; expected a whole number"),
        (["--lr", "nan"], "lr is nan; expected a finite number"),
    ],
)
def test_what_does_not_fit_is_one_line(file, more, problem, capsys):
    if not file.exists():
        small = options.Options("lightsout", "1x3", steps=8, batch_size=2, hidden=(8,), dim=8)
        records.Record(records.settings(small)).write(file)
    assert main(words(file, *more)) == 2
    said = capsys.readouterr().err
    assert problem in said and said.count("\n") == 1


SHOWN = {
    "joins_buttons.json": options.JOINS,
    "joins_lightsout.json": ("early", "late", "inner", "one_symmetric", "one_difference", "pair", "token"),
    "joins_lightsout_3x3.json": ("one_symmetric", "one_difference", "token"),
    "joins_lightsout_late.json": ("late", "inner"),
}


@pytest.mark.parametrize("file", SHOWN)
def test_the_page_has_the_table_of_the_row_file(file):
    record = records.read(ROOT / "results" / file)
    assert {(row.join, row.seed) for row in record.rows} == {(j, seed) for j in SHOWN[file] for seed in range(3)}
    assert "\n".join(records.table(record)) in PAGE
    commands = re.findall(r"^dualgoal (joins --world (?:[^\\\n]|\\\n)*)$", PAGE, re.M)
    (command,) = (words for words in commands if words.endswith(f" --out results/{file}"))
    asked = parsing.parse(Joins, command.replace("\\\n", " ").split()[1:], "dualgoal joins", "")
    assert set(asked.joins) == set(SHOWN[file])
    assert records.settings(asked) == record.options, "the command beside the table would add no row to its file"


def test_with_nine_lights_the_inner_product_is_still_at_zero_after_15_000_steps():
    (row,) = records.read(ROOT / "results" / "joins_buttons_inner.json").rows
    assert (row.join, row.seed, row.steps[-1]) == ("inner", 0, 15_000) and abs(row.lights[-1]) < 0.05


def test_the_page_has_the_agents_on_drawn_boards_of_their_file():
    rows = json.loads((ROOT / "results" / "lightsout_drawn.json").read_text())
    assert {(row["task"], row["step"], *row["hidden"]) for row in rows} == {("lightsout-2x2-drawn", 6_000, 128, 128)}
    made = []
    for name in dict.fromkeys(row["rep"]["name"] for row in rows):
        of = [row for row in rows if row["rep"]["name"] == name]
        listed = lambda form, of=of: ", ".join(map(form, of))
        made.append([f"`{name}`", listed(lambda r: f"{np.mean(r['learned']):.1f}")])
        made[-1] += [listed(lambda r: f"{r['correlation']:.2f}")]
        made[-1] += [listed(lambda r, what=what: f"{100 * r[what]:.0f}") for what in ("followed", "solved")]
    assert pages.table(PAGE, "By seed (`results/lightsout_drawn.json`") == made


def test_what_the_page_says_of_counting_lights():
    small = lightsout_puzzle.Puzzle(2, 2)
    differ = np.bitwise_count(np.arange(16)[None] ^ np.arange(16)[:, None])
    count = small.solved_by(differ, np.arange(16))
    assert round(100 * count) == 31 and "following that count solves 31 % of all pairs" in " ".join(PAGE.split())
    rng = np.random.default_rng(0)
    luck = np.mean([small.solved_by(rng.random((16, 16)), np.arange(16)) for _ in range(200)])
    assert round(100 * luck) == 20 and "random numbers in place of distances solve 20 %" in PAGE
    presses = lightsout_puzzle.search(small)
    assert (presses[0b0001], presses[0b0111]) == (3, 1)
    rows = [row for row in records.read(ROOT / "results" / "joins_lightsout.json").rows if row.join == "one_symmetric"]
    assert {row.solved for row in rows} == {count}
    larger = lightsout_puzzle.Puzzle(3, 3)
    differ = np.bitwise_count(np.arange(512)[None] ^ np.arange(512)[:, None])
    assert round(100 * larger.solved_by(differ, np.arange(512))) == 6 and "Counting lights solves 6 % here" in PAGE
