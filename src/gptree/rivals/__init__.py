"""Rivals: methods to compare with.

Most are scikit-learn classifiers with probabilities, on frozen features: `RIVALS`, `INCREMENTAL` and `GIBBS_RIVALS`
hold them by name. None of them maps the features beyond what is part of its method: put a transformer before it in a
pipeline. Settings left open are chosen on left-out training points, never on test data. `GPDNN` and `SVDKL` are
settings of heads that `gptree.deep.train` trains together with a network.

A new rival is one file in `frozen`, `incremental`, `gibbs` or `deep`. Every file there is imported, and the class in it
registers itself under its `name`.
"""

from gptree.rivals import deep, frozen, gibbs, incremental
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
from gptree.settings import import_modules

__all__ = [
    "GIBBS_RIVALS",
    "GPDNN",
    "INCREMENTAL",
    "RIVALS",
    "SVDKL",
    "DeepRival",
    "GibbsRival",
    "IncrementalRival",
    "KernelLogistic",
    "LogisticClassifier",
    "LogisticMemory",
    "LogisticSoftmaxGP",
    "Mapped",
    "NearestClassMean",
    "NearestNeighbours",
    "OneVsEachGP",
    "OverBudget",
    "RanPAC",
    "RivalClassifier",
    "SessionClassMean",
    "SessionRanPAC",
    "ShrinkageLDA",
    "ShrunkMeanLDA",
    "SmoothedLogistic",
    "SoftmaxRidge",
    "StickBreakingGP",
    "StreamingLDA",
    "Teen",
]

for family in (deep, frozen, gibbs, incremental):  # last: a new file may import the names above
    import_modules(family.__name__, family.__path__)
