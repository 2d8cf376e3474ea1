"""One kind of exception for everything a user can fix: its message is one line that says what, where and what to do."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

LONGEST = 4000  # characters of a message; it may quote a name of 20 MB
MOST_NAMES = 12  # in a list of what is there
MOST = 2**31 - 1  # steps are counted in 32 bits, and so is everything else


class UserError(ValueError):
    """Bad input, an unusable file, a missing part. The command line prints the message and exits with 2.

    >>> raise UserError("data.npz: 'terminals' has no episode end; expected at least one True")
    Traceback (most recent call last):
    dualgoal.errors.UserError: data.npz: 'terminals' has no episode end; expected at least one True
    """

    def __init__(self, message: str) -> None:
        # A message may quote what a file or a user says, line breaks and all.
        if len(message) > LONGEST:
            message = f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
        super().__init__(printable(message))


class Busy(UserError):
    """Another process is at what this one needs. Nothing is wrong, and the same command works when that one is done, so
    the command line exits with 75. `brief` says it without what to do."""

    def __init__(self, brief: str, advice: str) -> None:
        self.brief = printable(brief)
        super().__init__(f"{brief}; {advice}")


def printable(text: str) -> str:
    """The text with line breaks and control characters spelled out, for a terminal that would obey them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def brief(error: object) -> str:
    """What somebody else's exception says, in one line that is not too long and has no stop at its end."""
    return " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__


@contextmanager
def one_line(
    name: str, what: str = "cannot be read", advice: str = "the file is truncated or damaged"
) -> Iterator[None]:
    """Turn what somebody else's reader raises into one line; on a damaged file that may be anything, assertions
    included."""
    try:
        yield
    except UserError:
        raise
    except PermissionError as problem:
        raise UserError(f"{name}: cannot be read (permission denied); change its permissions") from problem
    except Exception as problem:
        raise UserError(f"{name}: {what} ({brief(problem)}); {advice}") from problem


def check_range(name: str, value: float | None, least: float, most: float = MOST) -> None:
    """Refuse a number outside [least, most], and NaN. None is a number that was not given."""
    if isinstance(value, str | bytes | Mapping | Sequence):
        raise UserError(f"{name} is {value!r}; expected a number")
    if value is not None and not least <= value <= most:
        bound = f"at most {most:,}" if value > most else f"at least {least}"
        raise UserError(f"{name} is {value}; expected {bound}")


def require_known(kind: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not among the known ones."""
    if name not in known:
        raise unknown(kind, name, known)


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a registry, with the nearest match."""
    known = list(known)
    return UserError(f"unknown {kind} '{name}'{did_you_mean(name, known)} (known: {', '.join(known)})")


def listed(names: Iterable[str]) -> str:
    """What is there, in a message: the first names, and dots for those that follow.

    >>> listed(f"{k}" for k in range(14))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...'
    """
    every = list(names)
    return ", ".join(every[:MOST_NAMES] + ["..."] * (len(every) > MOST_NAMES))


def pairs(values: Mapping[str, object]) -> str:
    """Names with what belongs to them, in a message.

    >>> pairs({"actions": "act", "terminals": ""})
    'actions act, no terminals'
    """
    return ", ".join(f"no {name}" if value == "" else f"{name} {value}" for name, value in values.items())


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The words about the nearest known name, if one is near."""
    near = get_close_matches(name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def number_of(count: int, what: str) -> str:
    """A number of things, for a message.

    >>> number_of(1, "seed"), number_of(2000, "episode")
    ('1 seed', '2,000 episodes')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


def kind_of(value: object) -> str:
    """The type of a value with its article, for a message.

    >>> kind_of(3), kind_of([])
    ('an int', 'a list')
    """
    name = type(value).__name__
    return f"an {name}" if name.lower().startswith((*"aeio", "ndarray")) else f"a {name}"


class Preempted(BaseException):
    """A scheduler has asked the process to leave. Like Ctrl-C it passes through whatever handles errors.

    The command line prints the message and exits with `terminal.PREEMPTED`; `number` is the signal that asked.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
