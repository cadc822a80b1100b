"""Deep kernels: a network and a GP-Tree on its embeddings, trained together."""

from gptree.deep.augment import Augmentation, ColourJitter, Cutout, RandomCrop, RandomFlip, RandomResizedCrop
from gptree.deep.backbones import Backbone, build_backbone, convnet, mlp, resnet18
from gptree.deep.curves import plot_curves
from gptree.deep.evaluation import embed, measure
from gptree.deep.head import SparseHead, TreeHead
from gptree.deep.heads import DeepHead, HeadSettings, Problem
from gptree.deep.log import read_log
from gptree.deep.objectives import CosineMargin, CrossEntropy, Objective, ObjectiveLayer
from gptree.deep.settings import Cosine, Milestones, Schedule, Training
from gptree.deep.sources import Arrays, Batch, FromDataset, Source, require_shape, whole
from gptree.deep.training import Trained, train
from gptree.deep.vote import Vote

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
    "SparseHead",
    "Trained",
    "Training",
    "TreeHead",
    "Vote",
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
