"""Reading with other people's libraries: whatever they raise becomes one line."""

from collections.abc import Iterator
from contextlib import contextmanager

from dualgoal.errors import UserError, brief


@contextmanager
def one_line(
    name: str, what: str = "cannot be read", advice: str = "the file is truncated or damaged"
) -> Iterator[None]:
    """Turn what a reader raises into one line; on a damaged file that may be anything, assertions included."""
    try:
        yield
    except UserError:
        raise
    except PermissionError as problem:
        raise UserError(f"{name}: cannot be read (permission denied); change its permissions") from problem
    except Exception as problem:
        raise UserError(f"{name}: {what} ({brief(problem)}); {advice}") from problem
