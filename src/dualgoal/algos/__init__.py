"""Offline goal-conditioned algorithms (section 5). A new one is a file here and a row in `ALGOS`."""

from dualgoal.algos.crl import CRL
from dualgoal.algos.dqn import DQN
from dualgoal.algos.gcbc import GCBC
from dualgoal.algos.gcfbc import GCFBC
from dualgoal.algos.gciql import GCIQL
from dualgoal.algos.gcivl import GCIVL
from dualgoal.algos.none import Nothing
from dualgoal.interface import Algorithm

ALGOS: dict[str, type[Algorithm]] = {
    "gcivl": GCIVL,
    "crl": CRL,
    "gcfbc": GCFBC,
    "gciql": GCIQL,
    "gcbc": GCBC,
    "dqn": DQN,
}
NONE: dict[str, type[Algorithm]] = {"none": Nothing}  # stage one of two: a representation alone
