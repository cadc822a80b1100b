"""Deep kernels: a network and a GP-Tree on its embeddings, trained together."""

from gptree.deep.backbones import Backbone, build_backbone, convnet, mlp, resnet18
from gptree.deep.data.arrays import Arrays
from gptree.deep.data.augment import Augmentation, ColourJitter, Cutout, RandomCrop, RandomFlip, RandomResizedCrop
from gptree.deep.data.base import Batch, Source, require_shape, whole
from gptree.deep.data.dataset import FromDataset
from gptree.deep.ensemble import WeightedEnsemble
from gptree.deep.heads.base import DeepHead, HeadSettings, Problem
from gptree.deep.heads.gp_tree import TreeHead
from gptree.deep.heads.variational_tree import VariationalTree
from gptree.deep.loop.evaluation import embed, measure
from gptree.deep.loop.log import plot_curves, read_log
from gptree.deep.loop.train import Trained, train
from gptree.deep.objectives import CosineMargin, CrossEntropy, Objective, ObjectiveLayer
from gptree.deep.settings import Cosine, Milestones, Schedule, Training
from gptree.deep.stages import StagedBackbone, Stages

__all__ = [
    "Arrays",
    "Augmentation",
    "Backbone",
    "Batch",
    "ColourJitter",
    "Cosine",
    "CosineMargin",
    "CrossEntropy",
    "Cutout",
    "DeepHead",
    "FromDataset",
    "HeadSettings",
    "Milestones",
    "Objective",
    "ObjectiveLayer",
    "Problem",
    "RandomCrop",
    "RandomFlip",
    "RandomResizedCrop",
    "Schedule",
    "Source",
    "StagedBackbone",
    "Stages",
    "Trained",
    "Training",
    "TreeHead",
    "VariationalTree",
    "WeightedEnsemble",
    "build_backbone",
    "convnet",
    "embed",
    "measure",
    "mlp",
    "plot_curves",
    "read_log",
    "require_shape",
    "resnet18",
    "train",
    "whole",
]
