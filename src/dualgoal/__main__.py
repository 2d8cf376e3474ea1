"""`python -m dualgoal` is the command line."""

import sys

from dualgoal.cli.main import main

sys.exit(main())
