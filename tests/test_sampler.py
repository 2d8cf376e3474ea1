"""Relabelling, windows and shifts (sections 2.1 to 2.5): laws as statistics of a fixed seed, rows as exact integers."""

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.extend.core import jaxprs_in_params

import small
from dualgoal import sampler, streams
from dualgoal.interface import Spec
from dualgoal.nets.augment import PAD
from dualgoal.streams import ACTOR_GOALS, FUTURE_GOALS, VALUE_GOALS, GoalMix, Waypoint, Window

DRAWS = 200_000
CURRENT = GoalMix(1.0, 0.0, 0.0, 0.0)
LIGHTS_OUT = GoalMix(0.2, 0.0, 0.5, 0.3)
MIXES = [VALUE_GOALS, FUTURE_GOALS, ACTOR_GOALS, LIGHTS_OUT, CURRENT]


def bits(seed: int, *shape: int):
    return random.bits(random.key(seed), shape, jnp.uint32)


def close_to(count, probability, n=DRAWS, sigmas=5):
    """Whether counts of n independent draws agree with their probabilities."""
    spread = np.sqrt(n * probability * (1 - probability)) + 1e-9
    return bool(np.all(np.abs(count - n * probability) <= sigmas * spread + 1e-6 * n))


def raw_terminals(lengths):
    terminals = np.zeros(sum(lengths), bool)
    terminals[small.episodes(lengths)[1]] = True
    return terminals


@partial(jax.jit, static_argnums=(2, 3))
def goals_of(data, block, mix, gamma):
    at = streams.valid_rows(data, block[0])
    return at.rows, at.last, mix.rows(data, at, block[1:], gamma)


# Rows ---------------------------------------------------------------------------------------------------------------


def test_valid_rows_and_their_last_goal_follow_from_the_terminals():
    """Section 2.1, from the raw terminals: valids = 1 - t, terminals = min(1, t_i + t_{i+1}), fin = the next one."""
    lengths = (2, 7, 3, 20)
    t = raw_terminals(lengths)
    valid = np.flatnonzero(~t)
    compact = t | np.append(t[1:], True)
    fin = [int(np.flatnonzero(compact[i:])[0]) + i for i in valid]
    n = jnp.arange(len(valid), dtype=jnp.uint32)
    rows, last = streams.valid_rows(small.unobserved(lengths), n)
    np.testing.assert_array_equal(rows, valid)
    np.testing.assert_array_equal(last, fin)


def test_transition_rows_are_uniform():
    data = small.unobserved((3, 40, 9))
    rows, _ = streams.valid_rows(data, bits(0, DRAWS))
    assert close_to(np.bincount(np.asarray(rows), minlength=52)[np.flatnonzero(~raw_terminals((3, 40, 9)))], 1 / 49)


@pytest.mark.parametrize("mix", MIXES)
def test_goals_are_never_an_episodes_last_row_and_futures_stay_inside(mix):
    lengths = (2, 3, 17, 6, 30)
    data = small.unobserved(lengths)
    rows, fin, goals = map(np.asarray, goals_of(data, bits(1, 5, DRAWS), mix, 0.9))
    ends = np.asarray(data.ends)
    assert not np.isin(goals, ends).any()
    assert goals.min() >= 0
    if mix.random == 0:
        assert (goals <= fin).all()
        assert (goals >= rows + (mix.current == 0) * (rows < fin)).all()


def test_value_goals_come_from_the_three_sources_in_their_shares():
    """Many episodes, so that a random goal lies in another one; the corner i = fin adds to the successes."""
    episodes, length = 1000, 101
    rows, fin, goals = map(
        np.asarray, goals_of(small.unobserved([length] * episodes), bits(2, 5, DRAWS), VALUE_GOALS, 0.99)
    )
    same, elsewhere = goals == rows, goals // length != rows // length
    corner = 1 / (length - 1)
    assert close_to(same.sum(), 0.2 + 0.5 * corner + 0.3 / (episodes * (length - 1)))
    assert close_to(elsewhere.sum(), 0.3 * (1 - 1 / episodes))
    assert close_to((~same & ~elsewhere & (goals > rows)).sum(), 0.5 * (1 - corner) + 0.3 / episodes / 2, sigmas=7)


@pytest.mark.parametrize("gamma", [0.95, 0.99])
def test_geometric_law_with_the_tail_on_the_last_goal(gamma):
    fin = 60
    fill = jnp.zeros(DRAWS, jnp.int32)
    goals = streams.geometric_future(fill, fill + fin, bits(3, DRAWS), gamma)
    k = np.arange(1, fin)
    law = np.append((1 - gamma) * gamma ** (k - 1), gamma ** (fin - 1))
    assert close_to(np.bincount(np.asarray(goals), minlength=fin + 1)[1:], law)


def test_uniform_future_gives_end_points_half_weight():
    fill = jnp.zeros(DRAWS, jnp.int32)
    goals = streams.uniform_future(fill + 5, fill + 14, bits(4, DRAWS))
    law = np.array([1, 2, 2, 2, 2, 2, 2, 2, 1]) / 16
    assert close_to(np.bincount(np.asarray(goals), minlength=15)[6:], law)


@pytest.mark.parametrize("future", [streams.uniform_future, partial(streams.geometric_future, gamma=0.9)])
def test_future_of_the_last_goal_is_itself(future):
    rows = jnp.full(100, 7, jnp.int32)
    np.testing.assert_array_equal(future(rows, rows, bits=bits(0, 100)), rows)


@pytest.mark.parametrize("offset", [0, 2_000_000, 20_000_000])
def test_uniform_future_equals_float64_at_any_row(offset):
    """k = round(u min(i + 1, fin) + (1 - u) fin) in float64, where float32 on absolute rows leaves the episode."""
    rng = np.random.default_rng(5)
    i = offset + rng.integers(0, 2000, DRAWS)
    fin = np.maximum(i, offset + rng.integers(0, 2000, DRAWS))
    b = bits(6, DRAWS)
    u = np.asarray(b) / 2.0**32
    expected = np.round(u * np.minimum(i + 1, fin) + (1 - u) * fin).astype(np.int64)
    got = streams.uniform_future(jnp.asarray(i, jnp.int32), jnp.asarray(fin, jnp.int32), b)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("offset", [2_000_000, 20_000_000])
def test_geometric_future_does_not_depend_on_the_row_number(offset):
    rng = np.random.default_rng(7)
    i, fin, b = rng.integers(0, 1000, DRAWS), np.full(DRAWS, 999), bits(8, DRAWS)
    goals = lambda shift: np.asarray(
        streams.geometric_future(jnp.asarray(i + shift, jnp.int32), jnp.asarray(fin + shift, jnp.int32), b, 0.99)
    )
    np.testing.assert_array_equal(goals(offset) - offset, goals(0))
    u = np.asarray(streams.unit(b), np.float64)
    expected = np.minimum(i + np.floor(np.log1p(-u) / np.log(0.99)).astype(np.int64) + 1, fin)
    assert np.abs(goals(0) - expected).max() <= 1
    assert (goals(0) != expected).mean() < 1e-3, "float32 logarithms may fall on the other side of an integer"


@pytest.mark.parametrize("mix", [VALUE_GOALS, ACTOR_GOALS, LIGHTS_OUT])
@pytest.mark.parametrize("offset", [0, 2_000_000, 20_000_000])
def test_relabelling_equals_a_float64_reading_at_any_row(offset, mix):
    """All of section 2.2 in int64 and float64, on episodes that lie behind `offset` rows of another one."""
    lengths = ([offset] if offset else []) + [1001] * 50
    data, n = small.unobserved(lengths), 20_000
    total = sum(lengths) - len(lengths)
    rng = np.random.default_rng(9)
    block = np.asarray(bits(10, 5, n)).copy()
    block[0] = total - 1 - rng.integers(0, 50_000, n)  # transitions of the later episodes
    rows, fin, goals = (np.asarray(x, np.int64) for x in goals_of(data, jnp.asarray(block), mix, 0.99))

    def valid(number):
        before = np.cumsum([0, *lengths]) - np.arange(len(lengths) + 1)  # valid rows before each episode
        episode = np.array([np.flatnonzero(before <= x)[-1] for x in number])
        return number + episode, np.cumsum(lengths)[episode] - 2

    i, last = valid(block[0].astype(np.int64))
    np.testing.assert_array_equal(rows, i)
    np.testing.assert_array_equal(fin, last)
    u = (block[2:] >> 8) / 2.0**24
    if mix.uniform > 0:
        fine = block[2] / 2.0**32
        future = np.round(fine * np.minimum(i + 1, last) + (1 - fine) * last).astype(np.int64)
    else:
        future = np.minimum(i + np.floor(np.log1p(-u[0]) / np.log(0.99)).astype(np.int64) + 1, last)
    expected = valid(block[1].astype(np.int64) % total)[0]
    if mix.current < 1:
        expected = np.where(u[1] < (mix.geometric + mix.uniform) / (1 - mix.current), future, expected)
    expected = np.where(u[2] < mix.current, i, expected)
    wrong = goals != expected
    if mix.geometric > 0:  # see above
        assert wrong.mean() < 1e-3
        assert np.abs(goals - expected).max() <= 1
    else:
        assert not wrong.any()


# Waypoints ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 2_000_000, 20_000_000])
@pytest.mark.parametrize("steps", [1, 10, 25])
def test_waypoints_equal_a_plain_reading_at_any_row(offset, steps):
    """k steps on, at most to the goal where that lies ahead in the same episode, else at most to the last goal row."""
    lengths = ([offset] if offset else []) + [101] * 20
    data, n = small.unobserved(lengths), 5_000
    rng = np.random.default_rng(1)
    block = np.asarray(bits(2, 9, n)).copy()
    block[0] = sum(lengths) - len(lengths) - 1 - rng.integers(0, 2_000, n)  # transitions of the later episodes
    at = streams.valid_rows(data, jnp.asarray(block[0]))
    goal = LIGHTS_OUT.rows(data, at, jnp.asarray(block[1:5]), 0.99)  # current, future and random goals
    got = np.asarray(Waypoint(steps, towards="far").rows(data, at, jnp.asarray(block[5:]), 0.99, goal))
    alone = np.asarray(Waypoint(steps).rows(data, at, jnp.asarray(block[5:]), 0.99, None))
    kinds = set()
    for i, last, g, w, free in zip(*(np.asarray(x).tolist() for x in (*at, goal, got, alone)), strict=True):
        ahead = i <= g <= last
        kinds.add(ahead)
        assert w == min(i + steps, g if ahead else last)
        assert free == min(i + steps, last)
    assert kinds == {True, False}


def test_a_waypoint_is_drawn_after_the_goal_it_leads_to():
    """In whatever order the roles stand, and also where the goal is a draw that another role made."""
    data = small.data(lengths=[50] * 4)._replace(observations=jnp.arange(200, dtype=jnp.float32)[:, None])
    spec = Spec((1,), 2, batch_size=200)
    wanted = {"way": Waypoint(5, towards="far"), "near": ACTOR_GOALS, "far": ACTOR_GOALS}
    batch = sampler.sample(data, random.key(0), wanted, spec)
    assert set(batch.draws) == {"way", "near"}
    row, goal, way = (np.asarray(x[:, 0]) for x in (batch.s, batch.draws["near"].g, batch.draws["way"].g))
    np.testing.assert_array_equal(way, np.minimum(row + 5, goal))


# Batches ------------------------------------------------------------------------------------------------------------


def test_batch_holds_consecutive_rows_and_their_goals():
    lengths = (12, 20, 9)
    data = small.data(lengths=lengths)
    data = data._replace(observations=jnp.arange(41, dtype=jnp.float32)[:, None] * jnp.ones((1, 3)))
    batch = sampler.sample(
        data, random.key(0), {"value": VALUE_GOALS, "actor": ACTOR_GOALS}, Spec((3,), 2, batch_size=500)
    )
    rows = np.asarray(batch.s[:, 0], int)
    np.testing.assert_array_equal(batch.next_s[:, 0], rows + 1)
    np.testing.assert_array_equal(batch.a, data.actions[rows])
    assert not np.isin(rows, data.ends).any()
    for goals in batch.draws.values():
        np.testing.assert_array_equal(goals.success, np.asarray(goals.g[:, 0], int) == rows)
    value, actor = (np.asarray(batch.draws[k].g[:, 0]) for k in ("value", "actor"))
    assert (value != actor).mean() > 0.5, "roles draw independently"


@pytest.mark.parametrize(("success", "expected"), [("row", 0.2), ("state", 1.0)])
def test_success_is_row_identity_unless_asked_for_states(success, expected):
    """Every state of this dataset is the same state."""
    data = small.data(lengths=[100] * 50)._replace(observations=jnp.zeros((5000, 3)))
    spec = Spec((3,), 2, batch_size=20_000, reached_by=success)
    goals = sampler.sample(data, random.key(0), {"value": VALUE_GOALS}, spec).draws["value"]
    assert float(goals.success.mean()) == pytest.approx(expected, abs=0.02)


def test_equal_images_are_one_state_before_they_are_shifted():
    """Four different images; every goal is shifted by offsets of its own."""
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    kinds = np.arange(5000) % 4
    data = small.data(lengths=[100] * 50)._replace(observations=jnp.asarray(images[kinds]))
    spec = Spec((8, 8, 3), 2, batch_size=4000, reached_by="state", augment=0.0)
    mix = GoalMix(0.0, 0.0, 0.0, 1.0, augment="independent")
    goals = sampler.sample(data, random.key(0), {"value": mix}, spec).draws["value"]
    assert float(goals.success.mean()) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("rep", "algo", "shared"), [("dual", "gcivl", True), ("dual", "crl", False), ("tra", "crl", False)]
)
def test_who_shares_a_draw(rep, algo, shared):
    """Dual and GCIVL use the very same value goals; TRA's are its own although CRL's follow the same law."""
    agent = small.agent(rep, algo, batch_size=64)
    draws = agent.sample(small.data(), random.key(0), 0).draws
    assert (agent.draw_of["rep"] == "value") == shared
    assert set(draws) == set(agent.draw_of.values())
    rep, value = (draws[agent.draw_of[name]].g for name in ("rep", "value"))
    assert bool((rep == value).all()) == shared


def test_memory_beyond_the_dataset_does_not_grow_with_it():
    data = small.data(lengths=[1000] * 100)
    wanted = {"value": VALUE_GOALS, "actor": ACTOR_GOALS, "rep": Window()}
    jaxpr = jax.make_jaxpr(lambda d, k: sampler.sample(d, k, wanted, Spec((3,), 2, batch_size=8)))(data, random.key(0))
    sizes = [v.aval.size for eqn in _equations(jaxpr.jaxpr) for v in eqn.outvars]
    assert max(sizes) < 1000


def _equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from _equations(inner)


# Windows ------------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=1)
def windows_of(data, window, block):
    return window.rows(data, streams.Sampled(block[0], block[0]), block, 0.99)


def test_aligned_windows_are_whole_episodes():
    lengths = (5, 40, 3, 12)
    data = small.unobserved(lengths)
    first, now, after, last = map(np.asarray, windows_of(data, Window(), bits(11, 4, DRAWS)))
    starts, ends = map(np.asarray, small.episodes(lengths))
    e = np.searchsorted(starts, first, side="right") - 1
    assert ((starts[e] <= first) & (first <= now) & (now < last) & (last <= ends[e])).all()
    np.testing.assert_array_equal(after, now + 1)
    assert close_to(np.bincount(e), 1 / 4)
    assert set(last[e == 1] - starts[1]) == set(range(1, 40))
    assert set(first[e == 1] - starts[1]) == set(range(38)), "init ~ U{0..l-3}"


def test_window_law():
    """init ~ U{0..l-3}; T ~ U{init+1..l-1}; k ~ U{init..T-1}, enumerated for l = 5."""
    law: dict = {}
    for init in range(3):
        for last in range(init + 1, 5):
            for now in range(init, last):
                law[init, now, last] = float(Fraction(1, 3) / (4 - init) / (last - init))
    first, now, _, last = map(np.asarray, windows_of(small.unobserved([5]), Window(), bits(12, 4, DRAWS)))
    codes, counts = np.unique(first * 100 + now * 10 + last, return_counts=True)
    assert list(codes) == sorted(100 * i + 10 * k + t for i, k, t in law)
    expected = np.array([law[c // 100, c // 10 % 10, c % 10] for c in map(int, codes)])
    assert close_to(counts, expected)


@pytest.mark.parametrize(
    ("length", "episodes", "ends_apart", "now_apart"),
    [(1001, 1000, 0.251, 0.126), (2001, 1000, 0.202, 0.068), (2001, 500, 0.114, 0.024)],
)
def test_reference_windows_drift_across_episodes(length, episodes, ends_apart, now_apart):
    """D11: the fractions that section 2.3 gives for windows of L - 1 rows on episodes of L."""
    data = small.unobserved([length] * episodes)
    first, now, after, last = (np.asarray(x) for x in windows_of(data, Window(aligned=False), bits(13, 4, 2 * DRAWS)))
    assert (first // length != last // length).mean() == pytest.approx(ends_apart, abs=0.003)
    assert (now // length != last // length).mean() == pytest.approx(now_apart, abs=0.003)
    assert ((first <= now) & (now < last) & (after == now + 1)).all()
    assert last.max() < length * episodes
    starts = (first // (length - 1)).max()
    assert starts == (length * episodes - (length - 1) - 1) // (length - 1), "starts are multiples of l below T - l"


# Shifts -------------------------------------------------------------------------------------------------------------

SIDE = 16
OWN = GoalMix(0.0, 1.0, 0.0, 0.0, shared=False, augment="independent")
SHARED = GoalMix(0.0, 1.0, 0.0, 0.0, shared=False, augment="batch")


@pytest.fixture(scope="module")
def shifted():
    """Offsets of every image of 600 batches, read back from images whose pixels hold their coordinates."""
    y, x = np.mgrid[:SIDE, :SIDE]
    image = np.stack([y, x, 0 * x], axis=-1).astype(np.uint8)
    lengths, batch = [20] * 3, 8
    data = small.data(lengths=lengths)._replace(observations=jnp.asarray(np.repeat(image[None], 60, axis=0)))
    wanted = {"value": VALUE_GOALS, "actor": ACTOR_GOALS, "own": OWN, "shared": SHARED, "window": Window()}
    spec = Spec((SIDE, SIDE, 3), 2, batch_size=batch)

    @jax.jit
    @jax.vmap
    def offsets(key):
        drawn = sampler.sample(data, key, wanted, spec)
        images = {"s": drawn.s, "next_s": drawn.next_s, **{k: drawn.draws[k].g for k in list(wanted)[:4]}}
        images |= {f"window{n}": frame for n, frame in enumerate(drawn.draws["window"])}
        read = lambda image: image[:, SIDE // 2, SIDE // 2, :2].astype(jnp.int32) + PAD - SIDE // 2
        return {name: read(image) for name, image in images.items()}

    return {name: np.asarray(x) for name, x in offsets(random.split(random.key(0), 600)).items()}


def test_one_coin_per_batch(shifted):
    moved = (shifted["s"] != PAD).any(axis=-1)  # (batches, samples)
    augmented = moved.any(axis=1)
    assert close_to(augmented.sum(), 0.5, n=600)
    assert moved[augmented].mean() == pytest.approx(48 / 49, abs=0.02), "all samples of a shifted batch are shifted"


def test_offsets_are_uniform_and_the_same_for_all_images_of_a_sample(shifted):
    for name in ("next_s", "value", "actor", "shared"):
        np.testing.assert_array_equal(shifted[name], shifted["s"])
    used = shifted["s"][(shifted["s"] != PAD).any(axis=(1, 2))].reshape(-1, 2)
    assert close_to(np.bincount(used @ [7, 1], minlength=49), 1 / 49, n=len(used))


def test_own_goals_are_cropped_on_every_batch_at_their_own_offsets(shifted):
    own = shifted["own"].reshape(-1, 2)
    assert close_to(np.bincount(own @ [7, 1], minlength=49), 1 / 49, n=len(own))
    still = ~(shifted["s"] != PAD).any(axis=(1, 2))
    assert (shifted["own"][still] != PAD).any(axis=(1, 2)).all()
    agree = (shifted["own"] == shifted["s"]).all(axis=-1)[~still]
    assert agree.mean() == pytest.approx(1 / 49, abs=0.02)


def test_window_frames_are_never_shifted(shifted):
    for n in range(4):
        assert (shifted[f"window{n}"] == PAD).all()


def test_augmentation_can_be_off():
    data = small.data((8, 8, 3))
    batch = sampler.sample(data, random.key(0), {"actor": ACTOR_GOALS}, Spec((8, 8, 3), 2, batch_size=4, augment=0.0))
    stored = np.asarray(data.observations)
    assert all((image == stored).all(axis=(1, 2, 3)).any() for image in np.asarray(batch.s))
