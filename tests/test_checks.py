"""Arrays that are no dataset: each is refused in one line that names the file, the array and the row."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_files import arrays, put, write
from dualgoal.data import checks, dataset
from dualgoal.errors import UserError


def changed(**changes):
    content = arrays()
    for key, change in changes.items():
        content[key] = change(content[key]) if callable(change) else change
    return {key: value for key, value in content.items() if value is not None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(actions=None), "'actions' is missing .it holds observations, terminals"),
        (changed(observations=lambda x: x[:, 0]), r"'observations' has shape \(12,\)"),
        (
            changed(observations=lambda x: x.astype(np.uint8)),
            r"uint8 of shape \(12, 3\), .* 'dualgoal data import'",
        ),
        (changed(observations=np.zeros((12, 4, 4, 3))), "images of float64; expected uint8 with values from 0 to 255"),
        (changed(actions=np.arange(12.0)[:, None]), "'actions' is 2 in row 2, column 0, outside .* save them as integ"),
        (changed(observations=lambda x: x.astype("<U3")), "type <U3"),
        (changed(observations=lambda x: x.astype(complex)), "type complex128"),
        (changed(observations=lambda x: x[:, :0]), "must not be empty"),
        (changed(actions=lambda x: x[:-1]), "'actions' has 11 rows but 'observations' has 12"),
        (changed(terminals=lambda x: x[:, None]), "'terminals' has shape"),
        (changed(actions=lambda x: x[:, 0]), "'actions' has shape"),
        (changed(observations=put(7, np.nan)), "'observations' is nan in row 7, column 0; .* leave its episode out"),
        (changed(actions=put((3, 1), np.inf)), "'actions' is inf in row 3, column 1; expected finite"),
        (changed(observations=lambda x: put(2, 1e300)(x.astype(float))), r"'observations' is 1e\+300 in row 2"),
        (changed(actions=put((5, 0), -1.5)), r"'actions' is -1.5 in row 5, column 0, outside \[-1, 1\]"),
        (changed(actions=np.arange(12) - 4), "'actions' is -4 in row 0; discrete actions count from 0"),
        (changed(terminals=np.zeros(12, bool)), "'terminals' has no episode end; expected at least one True"),
        (changed(terminals=put(11, False)), "'terminals' is False in the last row 11"),
        (changed(terminals=put(4, True)), "'terminals' makes row 4 an episode of one row"),
        (changed(terminals=lambda x: put(6, 0.5)(x.astype(float))), "'terminals' is 0.5 in row 6; expected 0 or 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_file_key_and_row(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as caught:
        dataset.load(write(tmp_path, content))
    assert "set.npz" in str(caught.value) and "\n" not in str(caught.value)


def test_data_of_another_task_is_noticed(tmp_path):
    path = write(tmp_path, arrays(dim=28), "cube-single-play-v0.npz")
    with pytest.raises(UserError, match=r"play-v0.npz: 'actions' have shape \(2,\) but those of .* have \(5,\)"):
        dataset.load(path)
    with pytest.raises(UserError, match=r"'observations' have shape \(28,\) but those of scene-play-v0 have \(40,\)"):
        dataset.load(path, "scene-play-v0")


DAMAGE = {
    "drop the key": lambda a, r: None,
    "drop rows": lambda a, r: a[: r % (len(a) + 1)],
    "add an axis": lambda a, r: a[..., None],
    "drop an axis": lambda a, r: a.reshape(-1)[: len(a)],
    "nan": lambda a, r: put(r % len(a), np.nan)(a.astype(np.float64)) if len(a) else a,
    "large": lambda a, r: put(r % len(a), 1e39)(a.astype(np.float64)) if len(a) else a,
    "negative": lambda a, r: put(r % len(a), -7)(a.astype(np.int64)) if len(a) else a,
    "flip": lambda a, r: put(r % len(a), 1)(a) if len(a) else a,
    "zero": lambda a, r: np.zeros_like(a),
    "other type": lambda a, r: a.astype(["u1", "i8", "f2", "f8", "c8", "S4", "?", "M8[s]", "O", "V4"][r % 10]),
    "columns first": lambda a, r: np.asfortranarray(a),
    "scalar": lambda a, r: np.float32(r),
}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(
        st.tuples(st.sampled_from(checks.REQUIRED), st.sampled_from(sorted(DAMAGE)), st.integers(0, 1000)),
        min_size=1,
        max_size=3,
    )
)
def test_mutated_arrays_load_rightly_or_fail_in_one_line(tmp_path, damage):
    content = arrays()
    for key, kind, number in damage:
        if np.ndim(content.get(key)):
            try:
                with warnings.catch_warnings(action="ignore"):
                    content[key] = DAMAGE[kind](content[key], number)
            except (TypeError, ValueError, RuntimeError):
                continue  # NumPy has no such conversion
        if content.get(key) is None:
            content.pop(key, None)
    path = tmp_path / "set.npz"
    np.savez(path, **content)
    try:
        loaded = dataset.load(path)
    except UserError as problem:
        assert "set.npz" in str(problem) and "\n" not in str(problem)
        return
    assert loaded.rows == len(loaded.observations) == len(loaded.actions)
    assert np.diff(loaded.ends, prepend=-1).min() >= 2 and loaded.ends[-1] == loaded.rows - 1
    assert np.isfinite(loaded.observations).all() and loaded.observations.dtype == np.float32
    assert loaded.discrete or np.abs(loaded.actions).max() <= 1 + checks.SLACK
