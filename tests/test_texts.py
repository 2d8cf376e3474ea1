"""Tables as text."""

import pytest

from dualgoal.texts import aligned, markdown

ROWS = [["task", "seeds", "note"], ["maze", "8", ""], ["a cube", "16", "slow"]]


def test_columns_are_as_wide_as_their_cells():
    assert aligned(ROWS) == ["task    seeds  note", "maze    8", "a cube  16     slow"]


def test_numbers_end_below_each_other():
    assert aligned(ROWS, right=[1]) == ["task    seeds  note", "maze        8", "a cube     16  slow"]


def test_no_rows_are_no_lines():
    assert aligned([]) == []


def test_rows_of_unequal_length_are_a_mistake():
    with pytest.raises(ValueError):
        aligned([["a", "b"], ["c"]])


def test_the_first_row_is_the_head_of_a_pipe_table():
    assert markdown(ROWS[:2], right=[1]) == ["| task | seeds | note |", "| --- | ---: | --- |", "| maze | 8 |  |"]
