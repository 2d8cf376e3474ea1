"""The command line, called in this process."""

from dualgoal.cli import parsing
from dualgoal.cli.main import main
from dualgoal.cli.train import Train


def said(capsys, *words):
    status = main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def parsed(*words):
    return parsing.parse(Train, words, "dualgoal train", "", Train.defaults(words))


def configured(*words):
    return parsed(*words).configuration
