"""Rivals: methods to compare with.

Most are scikit-learn classifiers with probabilities, on frozen features: `RIVALS`, `INCREMENTAL` and `GIBBS_RIVALS`
hold them by name. None of them maps the features beyond what is part of its method: put a transformer before it in a
pipeline. Settings left open are chosen on left-out training points, never on test data. `GPDNN` and `SVDKL` are
settings of heads that `gptree.deep.train` trains together with a network. `NETWORK_RIVALS` are methods whose network
goes on training when classes arrive.

A new rival is one file in `frozen`, `incremental`, `gibbs`, `deep` or `networks`. Every file there is
imported, and the class in it registers itself under its `name`.
"""

from gptree.rivals import deep, frozen, gibbs, incremental, networks
from gptree.rivals.base import RIVALS, RivalClassifier
from gptree.rivals.deep.base import DeepRival
from gptree.rivals.deep.gpdnn import GPDNN
from gptree.rivals.deep.sv_dkl import SVDKL
from gptree.rivals.frozen.class_mean import NearestClassMean
from gptree.rivals.frozen.kernel_logistic import KernelLogistic
from gptree.rivals.frozen.lda import ShrinkageLDA
from gptree.rivals.frozen.logistic import LogisticClassifier
from gptree.rivals.frozen.neighbours import NearestNeighbours
from gptree.rivals.frozen.ranpac import RanPAC
from gptree.rivals.frozen.ridge import SoftmaxRidge
from gptree.rivals.frozen.smoothed_logistic import SmoothedLogistic
from gptree.rivals.gibbs.base import GIBBS_RIVALS, GibbsRival, OverBudget
from gptree.rivals.gibbs.logistic_softmax import LogisticSoftmaxGP
from gptree.rivals.gibbs.one_vs_each import OneVsEachGP
from gptree.rivals.gibbs.stick_breaking import StickBreakingGP
from gptree.rivals.incremental.base import INCREMENTAL, IncrementalRival
from gptree.rivals.incremental.class_mean import SessionClassMean
from gptree.rivals.incremental.lda import StreamingLDA
from gptree.rivals.incremental.logistic_memory import LogisticMemory
from gptree.rivals.incremental.mapped import Mapped
from gptree.rivals.incremental.ranpac import SessionRanPAC
from gptree.rivals.incremental.shrunk_means import ShrunkMeanLDA
from gptree.rivals.incremental.teen import Teen
from gptree.rivals.networks.base import NETWORK_RIVALS, NetworkRival
from gptree.rivals.networks.eeil import EEIL, EEILSettings
from gptree.rivals.networks.icarl import ICaRL, ICaRLSettings
from gptree.rivals.networks.lucir import LUCIR, LUCIRSettings
from gptree.rivals.networks.model import BaseNetwork
from gptree.rivals.networks.podnet import PODNet, PODNetSettings
from gptree.rivals.networks.rehearsal import Rehearsed, RehearsedSessions, rehearse, rehearsed_sessions
from gptree.rivals.networks.sdc import SDC, SDCSettings
from gptree.rivals.networks.settings import (
    BaseOnly,
    MemoryBudget,
    NetworkRivalSettings,
    PerClass,
    SessionTraining,
    SharedBudget,
)
from gptree.rivals.networks.topic import TOPIC, TOPICSettings
from gptree.settings import import_modules

__all__ = [
    "EEIL",
    "GIBBS_RIVALS",
    "GPDNN",
    "INCREMENTAL",
    "LUCIR",
    "NETWORK_RIVALS",
    "RIVALS",
    "SDC",
    "SVDKL",
    "TOPIC",
    "BaseNetwork",
    "BaseOnly",
    "DeepRival",
    "EEILSettings",
    "GibbsRival",
    "ICaRL",
    "ICaRLSettings",
    "IncrementalRival",
    "KernelLogistic",
    "LUCIRSettings",
    "LogisticClassifier",
    "LogisticMemory",
    "LogisticSoftmaxGP",
    "Mapped",
    "MemoryBudget",
    "NearestClassMean",
    "NearestNeighbours",
    "NetworkRival",
    "NetworkRivalSettings",
    "OneVsEachGP",
    "OverBudget",
    "PODNet",
    "PODNetSettings",
    "PerClass",
    "RanPAC",
    "Rehearsed",
    "RehearsedSessions",
    "RivalClassifier",
    "SDCSettings",
    "SessionClassMean",
    "SessionRanPAC",
    "SessionTraining",
    "SharedBudget",
    "ShrinkageLDA",
    "ShrunkMeanLDA",
    "SmoothedLogistic",
    "SoftmaxRidge",
    "StickBreakingGP",
    "StreamingLDA",
    "TOPICSettings",
    "Teen",
    "rehearse",
    "rehearsed_sessions",
]

for family in (deep, frozen, gibbs, incremental, networks):  # last: a new file may import the names above
    import_modules(family.__name__, family.__path__)
