"""Goal representations (sections 4 and 14 of docs/method.md). Nearly all work with every algorithm (`compatibility` has
the exceptions); more may come from other packages."""

from dualgoal.interface import Representation
from dualgoal.reps.byol import BYOL
from dualgoal.reps.dual import Dual
from dualgoal.reps.hiql_phi import HIQLPhi
from dualgoal.reps.orig import Orig
from dualgoal.reps.state_aware import DualPair, DualSiamese, DualToken
from dualgoal.reps.tra import TRA
from dualgoal.reps.vib import VIB
from dualgoal.reps.vip import VIP
from dualgoal.reps.wrapped import Wrapped as Wrapped

REPS: dict[str, type[Representation]] = {
    "orig": Orig,
    "vib": VIB,
    "vip": VIP,
    "tra": TRA,
    "byol": BYOL,
    "dual": Dual,
    "hiql_phi": HIQLPhi,
    "dual_siamese": DualSiamese,
    "dual_pair": DualPair,
    "dual_token": DualToken,
}

__all__ = ["BYOL", "REPS", "TRA", "VIB", "VIP", "Dual", "DualPair", "DualSiamese", "DualToken", "HIQLPhi", "Orig"]
