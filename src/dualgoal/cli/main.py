"""`dualgoal`: words to a command, its options and its run. What a user can repair is one line and exit status 2."""

import importlib
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from dualgoal.cli import terminal
from dualgoal.cli.verb import Verb
from dualgoal.errors import Busy, Preempted, UserError, unknown
from dualgoal.files import refusal

USER_ERROR = 2


class Entry(NamedTuple):
    """Where a command is and what it does; its module is imported when it is used."""

    place: str  # module of this folder, and class
    summary: str
    resumes: bool = False  # the same command again goes on where it stopped

    def load(self) -> type[Verb]:
        module, name = self.place.split(":")
        found: type[Verb] = getattr(importlib.import_module(f"dualgoal.cli.{module}"), name)
        return found


VERBS: dict[str, Entry] = {
    "train": Entry(
        "train:Train", "Train a goal representation and a policy, and evaluate the policy as it learns.", resumes=True
    ),
    "eval": Entry("results:Eval", "Evaluate a checkpoint of a run."),
    "compare": Entry("results:Compare", "Compare runs of the same task with each other, with intervals."),
    "report": Entry("results:Report", "Write one self-contained HTML file about one or more runs."),
    "export": Entry("results:Export", "Write goal encoder and policy as safetensors or ONNX."),
    "probe": Entry("results:Probe", "Measure what runs know of the buttons of a puzzle."),
    "label": Entry("results:Label", "Write the learned distance and advantage of every row of a dataset."),
    "reproduce": Entry("results:Reproduce", "Train the runs of a table of the paper and print it.", resumes=True),
    "sweep": Entry("cluster:Sweep", "Train every run of a grid and print one table of them.", resumes=True),
    "runs": Entry("cluster:Runs", "Show which runs are running, finished or failed, and how far they are."),
    "results": Entry("results:Results", "Collect evaluations of runs and build the page of results from them."),
    "data generate": Entry("data:Generate", "Make a dataset with scripted behaviours.", resumes=True),
    "data fetch": Entry("data:Fetch", "Download a dataset of the paper.", resumes=True),
    "data info": Entry("data:Info", "Print shapes, episodes, value ranges and origin of a dataset."),
    "data import": Entry("data:Import", "Convert your own recordings to a dataset."),
    "expert train": Entry("expert:Train", "Train a policy that walks, to generate data with it.", resumes=True),
    "expert eval": Entry("expert:Eval", "Measure how well a policy walks."),
    "list": Entry("listing:List", "List representations, algorithms, tasks or the paper's tables."),
    "demo": Entry("demo:Demo", "Train on Lights Out and on a maze and write a report, in under three minutes."),
    "doctor": Entry("doctor:Doctor", "Report versions, devices, rendering, memory and disk, and what to repair."),
    "completion": Entry("completion:Completion", "Print a script that lets bash or zsh complete commands and options."),
    "theory": Entry("experiments:Theory", "Check the paper's theorems exactly on small finite processes."),
    "lightsout": Entry(
        "experiments:LightsOut", "Train DQN on Lights Out, the puzzle with exact distances.", resumes=True
    ),
    "joins": Entry(
        "experiments:Joins", "Compare ways to join two images, on distances of drawn puzzles.", resumes=True
    ),
    "bench": Entry("experiments:Bench", "Measure how fast training is."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Without `argv` this is the program: the terminal is guarded too."""
    if argv is not None:
        return status(list(argv))
    words = sys.argv[1:]
    outputs = terminal.protect_output()
    terminal.shorten_warnings()
    terminal.repeat_lost_signals()
    resumes = any(VERBS[name].resumes for name in (" ".join(words[:n]) for n in (1, 2)) if name in VERBS)
    terminal.protect_signals(farewell("stopped", words), resumes)
    code = status(words)
    lost = terminal.lost_output(outputs)
    if lost is None:
        return code
    print(f"dualgoal: {lost}", file=sys.stderr, flush=True)
    return code or USER_ERROR


def status(words: list[str]) -> int:
    """Run one command, print in one line what a user can repair, and return the exit status."""
    try:
        run(words)
    except Busy as problem:
        _complain(f"dualgoal: {problem}")
        return terminal.PREEMPTED
    except UserError as problem:
        return _failed(str(problem))
    except KeyboardInterrupt as stop:
        _complain(farewell(str(stop) or "stopped", words))
        return terminal.INTERRUPTED
    except Preempted as request:
        _complain(farewell(str(request), words))
        return terminal.PREEMPTED
    except SystemExit as end:  # tyro's, after --help or after an error that it has printed itself
        return end.code if isinstance(end.code, int) else 0
    except (OSError, MemoryError, RecursionError, RuntimeError) as problem:
        message = explain(problem)
        if message is None or os.environ.get("DUALGOAL_DEBUG"):
            raise
        return _failed(message)
    return 0


def farewell(message: str, words: list[str]) -> str:
    """The line after Ctrl-C or a signal, with the command to repeat."""
    below = "\n" if sys.stderr.isatty() else ""  # the line on which the terminal has echoed ^C
    return f"{below}dualgoal: {message}: dualgoal {shlex.join(words)}"


def _failed(message: str) -> int:
    _complain(f"dualgoal: {UserError(message)}")
    return USER_ERROR


def _complain(line: str) -> None:
    """Print to standard error, after what was printed before: both may go to the same file."""
    sys.stdout.flush()
    print(line, file=sys.stderr)


def run(words: list[str]) -> None:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    group = {name: entry for name, entry in VERBS.items() if name.startswith(f"{words[0]} ")} if words else {}
    if not words or words[0] in ("-h", "--help"):
        print(usage(VERBS))
    elif group and words[1:2] in (["-h"], ["--help"]):
        print(usage(group, f"{words[0]} "))
    elif words[0] == "--version":
        from dualgoal import __version__

        print(__version__)
    else:
        from dualgoal.cli import parsing

        name, rest = find(words)
        verb = VERBS[name].load()
        lines = textwrap.wrap(" ".join((verb.__doc__ or "").split()), shutil.get_terminal_size().columns - 2)
        about = "\n  ".join([VERBS[name].summary, *lines])  # indented, as tyro joins lines that begin with a letter
        parsing.parse(verb, rest, f"dualgoal {name}", about, verb.defaults(rest)).run()


def usage(verbs: dict[str, Entry], group: str = "") -> str:
    """The list of commands, of all or of a group of them."""
    lines = [f"usage: dualgoal {group}COMMAND ...  (dualgoal {group}COMMAND --help lists its options)", ""]
    return "\n".join(lines + [f"  {name:<14} {entry.summary}" for name, entry in verbs.items()])


def find(words: list[str]) -> tuple[str, list[str]]:
    """The command that the first one or two words name, and the rest."""
    for size in (2, 1):
        if " ".join(words[:size]) in VERBS:
            return " ".join(words[:size]), words[size:]
    group = [name for name in VERBS if name.split()[0] == words[0]]
    if group and len(words) == 1:
        raise UserError(f"{words[0]} needs one of: {', '.join(name.split()[1] for name in group)}")
    raise unknown("command", " ".join(words[:2]) if group else words[0], VERBS)


def explain(problem: Exception) -> str | None:
    """One line for what the machine refused; None for anything else, which is a defect and keeps its traceback."""
    if isinstance(problem, OSError):
        return refusal(problem)
    if isinstance(problem, MemoryError) or str(problem).startswith("RESOURCE_EXHAUSTED"):  # of a GPU
        detail = f" ({str(problem).splitlines()[0]})" if str(problem) else ""
        return f"not enough memory{detail}; try fewer seeds, a smaller batch or a smaller dataset"
    if isinstance(problem, RecursionError):
        return "a file is nested too deeply to be read; it is probably damaged"
    return None
