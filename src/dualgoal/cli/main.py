"""The command line: words to a verb, its arguments and a call. What a user can fix is one line and exit status 2."""

import contextlib
import functools
import io
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dualgoal.cli import verbs
from dualgoal.errors import UserError, unknown

INTERRUPTED = 130


def train(args: Sequence[str]) -> None:
    """Train, evaluate, checkpoint; run the same command again: resumes."""
    from dualgoal.cli import train_flags
    from dualgoal.runs import directory, training

    run, extra = train_flags.parse_train(args, lambda cls, words: parse(cls, words, "train", train.__doc__))
    out = extra.out or directory.default_folder(run)
    training.train(
        run, out, data_path=extra.data, workers=extra.workers, track_with=extra.track, video=extra.video,
        quiet=extra.quiet, pin=extra.pin,
    )  # fmt: skip


VERBS: dict[str, Callable[..., None]] = {
    "train": train,
    "eval": verbs.eval_,
    "report": verbs.report,
    "results": verbs.results,
    "data generate": verbs.data_generate,
    "data fetch": verbs.data_fetch,
    "data info": verbs.data_info,
    "data import": verbs.data_import,
    "reproduce": verbs.reproduce,
    "theory": verbs.theory,
    "lightsout": verbs.lightsout,
    "export": verbs.export,
    "bench": verbs.bench,
    "doctor": verbs.doctor,
    "demo": verbs.demo,
    "list": verbs.list_,
}


def parse(target: Any, args: Sequence[str], verb: str, description: str | None = None) -> Any:
    """What `args` say: an instance of a class, or a call of a function that is yet to be made.

    Tyro's complaints become one line. Functions are not called here, so that what they print is not caught with it.
    """
    import tyro

    said = io.StringIO()
    pairs_off = (tyro.conf.FlagCreatePairsOff,)
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(target, prog=f"dualgoal {verb}", args=list(args), description=description, config=pairs_off)
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise UserError(_one_line(said.getvalue(), verb)) from None


def _later(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The same signature and help, but a call only remembers its arguments."""

    @functools.wraps(function)
    def remember(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return functools.partial(function, *args, **kwargs)

    return remember


def _one_line(box: str, verb: str) -> str:
    """The gist of tyro's framed message: its first paragraph, and the flag it thinks was meant."""
    paragraphs: list[list[str]] = [[]]
    for line in (raw.strip("│╭╮╰╯ ") for raw in box.splitlines()[1:-1]):
        if set(line) <= {"─", "-"}:  # a rule, drawn with dashes where the terminal has no other
            paragraphs.append([])
        else:
            paragraphs[-1].append(line)
    first, *others = [words for words in paragraphs if words]
    gist = " ".join(first)
    near = [words[1].split()[0] for words in others if words[0].startswith("Perhaps you meant")]
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{gist}{hint} (see dualgoal {verb} --help)"


def usage() -> str:
    """The list of verbs."""
    lines = ["usage: dualgoal VERB ...  (dualgoal VERB --help for its options)", ""]
    lines += [f"  {name:<14} {(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(lines)


def _verb(words: list[str]) -> tuple[str, list[str]]:
    for size in (2, 1):
        if " ".join(words[:size]) in VERBS:
            return " ".join(words[:size]), words[size:]
    group = [name for name in VERBS if name.split()[0] == words[0]]
    if group and len(words) == 1 or group and words[1] in ("-h", "--help"):
        raise UserError(f"{words[0]} needs one of: {', '.join(name.split()[1] for name in group)}")
    raise unknown("command", " ".join(words[:2]) if group else words[0], VERBS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        run(words)
    except UserError as problem:
        print(f"dualgoal: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"\n{stop or 'stopped'}: dualgoal {shlex.join(words)}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever was reading has seen enough
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(usage(), flush=True)
        return
    if words[0] == "--version":
        from dualgoal import __version__

        print(__version__)
        return
    name, rest = _verb(words)
    if name == "train":
        train(rest)
    else:
        parse(_later(VERBS[name]), rest, name)()


if __name__ == "__main__":
    sys.exit(main())
