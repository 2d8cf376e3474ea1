"""`dualgoal completion`: what the Tab key of a shell completes, as a script for the shell to read when it starts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from dualgoal.cli import main, parsing
from dualgoal.cli.verb import Verb

BASH = """\
_dualgoal() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}" at=$COMP_CWORD words=""
  case " {groups} " in *" $verb "*)
    if (( at > 2 )); then verb="$verb ${{COMP_WORDS[2]}}"; at=$(( at - 1 )); fi;;
  esac
  case "$verb ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
    *) if (( at == 1 )); then words="{first}"; else
      case "$at $verb" in
{seconds}
        *) [[ "$current" == -* ]] && case "$verb" in
{options}
        esac;;
      esac
    fi;;
  esac
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -F _dualgoal dualgoal"""


@dataclass(frozen=True)
class Completion(Verb):
    """For bash: dualgoal completion bash > ~/.local/share/bash-completion/completions/dualgoal. For zsh, add to
    ~/.zshrc: source <(dualgoal completion zsh)."""

    shell: Annotated[Positional[Literal["bash", "zsh"]], arg(metavar="SHELL")]
    """bash or zsh."""

    def run(self) -> None:
        zsh = "autoload -U compinit bashcompinit && compinit && bashcompinit\n" if self.shell == "zsh" else ""
        print(zsh + script())


def script() -> str:
    """The script: commands, their options, and the words that some of them take."""
    from dualgoal import registry
    from dualgoal.envs import tasks
    from dualgoal.paper import tables

    groups = {name.split()[0] for name in main.VERBS if " " in name}
    train = main.VERBS["train"].load()
    given: dict[str, tuple[type[Verb], Verb | None]] = {
        name: (entry.load(), None) for name, entry in main.VERBS.items()
    }
    given["train"] = (train, train.defaults([next(iter(tasks.TASKS))]))
    names: dict[str, Iterable[str]] = {"train": tasks.TASKS, "reproduce": tables.TABLES, "completion": ("bash", "zsh")}
    names |= {"list": ("reps", "algos", "tasks", "tables"), "data generate": tasks.TASKS, "data fetch": tasks.TASKS}
    names |= {group: [name.split()[1] for name in main.VERBS if name.startswith(f"{group} ")] for group in groups}
    values: dict[str, Iterable[str]] = {}
    for name, of_command in given.items():
        values |= {f"{name} {flag}": words for flag, words in parsing.choices(*of_command).items()}
    values |= {f"train --{kind}": registry.names(kind) for kind in registry.BASES}
    values |= {f"bench --{kind}s": registry.names(kind) for kind in registry.BASES}
    values["reproduce --tasks"] = tasks.TASKS
    case = lambda indent, pattern, words: f'{" " * indent}"{pattern}") words="{" ".join(words)}";;'
    return BASH.format(
        groups=" ".join(sorted(groups)),
        first=" ".join(dict.fromkeys(name.split()[0] for name in main.VERBS)),
        values="\n".join(case(4, ask, words) for ask, words in values.items()),
        seconds="\n".join(case(8, f"2 {verb}", words) for verb, words in names.items()),
        options="\n".join(case(10, verb, [*parsing.flags(*given[verb]), "--help"]) for verb in given),
    )
