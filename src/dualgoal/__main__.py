"""`python -m dualgoal` is the command line."""

import sys

from dualgoal.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
