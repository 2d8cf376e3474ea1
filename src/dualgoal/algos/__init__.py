"""Offline goal-conditioned algorithms (sections 5 and 14 of docs/method.md). Nearly all work with every representation
(`compatibility` has the exceptions); more may come from other packages."""

from dualgoal.algos.crl import CRL
from dualgoal.algos.daf import DAF
from dualgoal.algos.dqn import DQN
from dualgoal.algos.gcbc import GCBC
from dualgoal.algos.gcfbc import GCFBC
from dualgoal.algos.gciql import GCIQL
from dualgoal.algos.gcivl import GCIVL
from dualgoal.algos.hiql import HIQL
from dualgoal.algos.none import NoAlgorithm
from dualgoal.algos.trl import TRL
from dualgoal.interface import Algorithm

ALGOS: dict[str, type[Algorithm]] = {
    "gcivl": GCIVL,
    "crl": CRL,
    "gcfbc": GCFBC,
    "gciql": GCIQL,
    "gcbc": GCBC,
    "dqn": DQN,
    "hiql": HIQL,
    "trl": TRL,
    "daf": DAF,
    "none": NoAlgorithm,
}

__all__ = ["ALGOS", "CRL", "DAF", "DQN", "GCBC", "GCFBC", "GCIQL", "GCIVL", "HIQL", "TRL", "NoAlgorithm"]
