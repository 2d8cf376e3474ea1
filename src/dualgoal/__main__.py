"""`python -m dualgoal` is the command line."""

import sys

from dualgoal.cli import main

sys.exit(main())
