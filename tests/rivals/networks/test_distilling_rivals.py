"""iCaRL, EEIL and LUCIR: their losses against slow twins, what they equal at rate 0, and their phases."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from network_cases import digits, fitted, known, network, settings_of, taught
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from gptree.deep import embed
from gptree.rivals import EEIL, LUCIR, EEILSettings, ICaRLSettings, LUCIRSettings, SharedBudget
from gptree.rivals.networks.blocks import distillation
from gptree.rivals.networks.eeil import head_distillation
from gptree.rivals.networks.icarl import sigmoid_loss
from gptree.rivals.networks.lesson import Lesson
from gptree.rivals.networks.lucir import less_forget, margin_ranking

CPU = torch.device("cpu")


def rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def features_of(rival: Any, X: np.ndarray) -> Tensor:
    """Unit features."""
    source = rival.state_.inputs.source(X)
    return normalize(embed(rival.state_.model, source, np.arange(len(X)), CPU), dim=1)


# -------------------------------------------------------------------------------------------- what rate 0 comes down to


def test_icarl_at_rate_zero_is_the_nearest_mean_of_exemplars_of_the_frozen_network() -> None:
    start, rival, data = fitted("icarl tuned"), taught("icarl tuned", session__learning_rate=0.0), digits()
    memory = rival.state_.memory
    exemplars = features_of(start, memory.pictures.numpy()[:, 0])
    means = torch.stack([normalize(exemplars[memory.y == c].mean(0), dim=0) for c in range(10)])
    distances = torch.cdist(features_of(start, data.X), means).square()
    expected = (-distances / rival.settings.temperature).softmax(1)
    np.testing.assert_allclose(rival.predict_proba(data.X), expected, atol=2e-5)


@pytest.mark.parametrize("name", ["eeil", "lucir"])
def test_eeil_and_lucir_at_rate_zero_are_the_old_classifier_and_imprinted_rows(name: str) -> None:
    case, data = f"{name} tuned", digits()
    start, rival = fitted(case), taught(case, session__learning_rate=0.0)
    old = start.state_.model.classifier.rows[0]
    weights = [old]
    for X, y in data.sessions:
        shots = features_of(start, X)
        length = torch.cat(weights).norm(dim=1).mean()
        weights.append(torch.stack([length * normalize(shots[y == c].mean(0), dim=0) for c in np.unique(y)]))
    together, scale = torch.cat(weights), start.state_.model.classifier.scale
    logits = features_of(start, data.X) @ (together if scale is None else scale * normalize(together, dim=1)).T
    np.testing.assert_allclose(rival.predict_proba(data.X), logits.softmax(1).numpy(), atol=1e-5)
    assert (scale is None) == (name == "eeil")


@pytest.mark.parametrize("name", ["icarl", "eeil", "lucir"])
def test_tao_at_rate_zero_is_the_old_classifier_and_tiny_rows(name: str) -> None:
    rival = taught(f"{name} tao", session__learning_rate=0.0)
    first, *later = rival.state_.model.classifier.rows
    assert torch.equal(first, fitted(f"{name} tao").state_.model.classifier.rows[0])
    tiny = torch.cat([*later]).flatten()
    assert len(tiny) == 4 * 12
    assert 0.0007 < float(tiny.std()) < 0.0013  # N(0, 0.001²): beyond four standard errors for one seed in 10⁴


# ---------------------------------------------------------------------------------------------------------------- iCaRL


def test_sigmoid_loss_is_the_double_loop_and_ignores_labels_of_exemplars() -> None:
    new, old, y = rows(4, 5), rows(4, 3, 1), torch.tensor([0, 3, 4, 1])
    slow = 0.0
    for i in range(4):
        for c in range(5):
            target = float(old[i, c].sigmoid()) if c < 3 else float(y[i] == c)
            p = float(new[i, c].sigmoid())
            slow -= (target * np.log(p) + (1 - target) * np.log(1 - p)) / 20
    assert float(sigmoid_loss(new, old, y)) == pytest.approx(slow)
    torch.testing.assert_close(sigmoid_loss(new, old, torch.tensor([2, 3, 4, 0])), sigmoid_loss(new, old, y))


def test_sigmoid_loss_of_equal_networks_has_no_gradient_on_old_columns() -> None:
    new = rows(4, 5).requires_grad_()
    sigmoid_loss(new, new.detach()[:, :3], torch.tensor([0, 3, 4, 1])).backward()
    assert new.grad is not None
    assert float(new.grad[:, :3].abs().max()) < 1e-12
    assert float(new.grad[:, 3:].abs().min()) > 0


def test_icarl_learns_with_the_loss_of_its_first_code() -> None:
    rival = taught("icarl tuned", 1, loss="sigmoid")
    assert rival.log_[-1]["last_loss"] < 1
    assert not np.array_equal(rival.predict_proba(digits().X), known("icarl tuned", 1).predict_proba(digits().X))


def test_a_shared_budget_shrinks_to_prefixes() -> None:
    start = fitted("icarl tuned", memory=SharedBudget(30))
    first = start.state_.memory
    rival = taught("icarl tuned", 1, memory=SharedBudget(30))
    memory = rival.state_.memory
    assert len(memory.y) <= 30
    assert Counter(memory.y.tolist()) == dict.fromkeys(range(8), 3)
    for c in range(6):
        assert torch.equal(memory.pictures[memory.y == c], first.pictures[first.y == c][:3])


# ----------------------------------------------------------------------------------------------------------------- EEIL


def test_heads_are_distilled_one_by_one() -> None:
    new, old = rows(4, 7), rows(4, 5, 1)
    found = head_distillation(new, old, [3, 2, 2], 2.0)
    slow = distillation(new[:, :3], old[:, :3], 2.0) + distillation(new[:, 3:5], old[:, 3:5], 2.0)
    torch.testing.assert_close(found, slow)
    shifted = new.clone()
    shifted[:, 3:5] += 10.0  # a shift of all logits of a head
    torch.testing.assert_close(head_distillation(shifted, old, [3, 2, 2], 2.0), found)
    assert not torch.allclose(head_distillation(shifted, old, [5, 2], 2.0), head_distillation(new, old, [5, 2], 2.0))


def test_no_gradient_of_any_head_where_networks_agree() -> None:
    new = rows(4, 7).requires_grad_()
    head_distillation(new, new.detach()[:, :5], [3, 2, 2], 2.0).backward()
    assert new.grad is not None
    assert float(new.grad.abs().max()) < 1e-12


def test_the_second_phase_is_balanced_and_has_a_teacher_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Lesson, dict[str, Any]]] = []
    train = Lesson.train

    def recorded(self: Lesson, *arguments: Any, **others: Any) -> None:
        calls.append((self, others))
        train(self, *arguments, **others)

    monkeypatch.setattr(Lesson, "train", recorded)
    rival = taught("eeil tuned", 1, memory__base=7)
    (lesson, first), (_, second) = calls
    assert "teacher" not in first
    assert second["teacher"] is not lesson.teacher
    assert second["teacher"].classifier.sizes == [6, 2]
    assert lesson.teacher.classifier.sizes == [6]
    counts = Counter(lesson.y[second["rows"]].tolist())
    assert counts == dict.fromkeys(range(8), 5)
    assert len(second["rows"]) == len(set(second["rows"]))
    assert [row["steps"] for row in rival.log_] == [4, 3]


def test_balanced_fine_tuning_needs_pictures_of_every_class() -> None:
    with pytest.raises(ValueError, match="balanced_steps=0"):
        EEILSettings.tao("cub").with_params(balanced_steps=3)
    with pytest.raises(ValueError, match="pictures of every class"):
        taught("eeil tuned", memory__novel=0)


# ---------------------------------------------------------------------------------------------------------------- LUCIR


def test_features_are_compared_by_direction() -> None:
    f = rows(7, 5)
    assert float(less_forget(f, f)) == pytest.approx(0, abs=1e-12)
    assert float(less_forget(3 * f, f)) == pytest.approx(0, abs=1e-12)
    assert float(less_forget(-f, f)) == pytest.approx(2)
    other = rows(7, 5, 1)
    slow = np.mean([1 - float(cosine_similarity(f[i], other[i], dim=0)) for i in range(7)])
    assert float(less_forget(f, other)) == pytest.approx(slow)


@pytest.mark.parametrize("n_new", [1, 2, 4])
def test_margin_ranking_is_the_double_loop(n_new: int) -> None:
    cosines, y = rows(9, 3 + n_new).tanh(), torch.tensor([0, 1, 2, 0, 1, 3, 3, 2, 3])
    losses = []
    for i in range(9):
        if y[i] < 3:
            nearest = sorted(cosines[i, 3:].tolist(), reverse=True)[:2]
            losses += [max(0.0, 0.5 - float(cosines[i, y[i]]) + value) for value in nearest]
    assert float(margin_ranking(cosines, y, 3, 0.5, 2)) == pytest.approx(np.mean(losses))


def test_margin_ranking_leaves_rows_of_new_classes_and_far_ones_alone() -> None:
    cosines = rows(6, 5).tanh().requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 4, 3])
    margin_ranking(cosines, y, 3, 0.5, 2).backward()
    assert cosines.grad is not None
    assert not cosines.grad[3:].any()
    assert cosines.grad[:3].any()
    far = torch.tensor([[0.9, -0.9, 0.3, 0.2]], dtype=torch.float64)
    assert float(margin_ranking(far, torch.tensor([0]), 2, 0.5, 2)) == 0
    assert float(margin_ranking(far, torch.tensor([2]), 2, 0.5, 2)) == 0  # no row of an old class


def test_lucir_trains_its_scale_and_weighs_by_old_over_new_classes() -> None:
    start, rival = fitted("lucir tuned"), known("lucir tuned")
    assert not torch.equal(start.state_.model.classifier.scale, rival.state_.model.classifier.scale)
    first = {
        weight: taught("lucir tuned", 1, less_forget=weight, adaptive=adaptive).log_[0]["last_loss"]
        for weight, adaptive in ((5.0, True), (5.0 * np.sqrt(3), False))
    }
    assert len({round(loss, 6) for loss in first.values()}) == 1  # √(6 old / 2 new)


def test_lucir_needs_features_of_both_signs_for_cosines_only() -> None:
    rectified = network(embedding=None)
    with pytest.raises(ValueError, match="both signs"):
        LUCIR(rectified, LUCIRSettings.tuned()).fit(*digits().base)
    LUCIR(rectified, LUCIRSettings.tao("cub"))._check()
    with pytest.raises(ValueError, match="both signs"):
        LUCIR(torch.nn.Flatten(), LUCIRSettings.tuned().with_params(session__trainable="all")).fit(*digits().base)


# -------------------------------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize(
    ("data", "rate", "steps", "memory_weight", "less_forget"),
    [("mini-imagenet", 0.1, 100, 0.01, 1), ("cifar100", 0.1, 70, 0.004, 50), ("cub", 0.01, 100, 0.004, 1)],
)
def test_presets_of_tao(data: Any, rate: float, steps: int, memory_weight: float, less_forget: float) -> None:
    icarl, eeil_settings, lucir = (kind.tao(data) for kind in (ICaRLSettings, EEILSettings, LUCIRSettings))
    for settings in (icarl, eeil_settings, lucir):
        assert (settings.session.learning_rate, settings.session.steps) == (rate, steps)
        assert (settings.rule, settings.new_rows, settings.memory.total) == ("classifier", "random", 400)
        assert settings.session.nesterov
        assert settings.objective == LUCIRSettings.tuned().objective
    assert eeil_settings.memory_weight == memory_weight
    assert eeil_settings.distillation == (0.8 if data == "cub" else 1.0)
    assert lucir.less_forget == less_forget
    assert lucir.freeze_old == (data != "mini-imagenet")
    with pytest.raises(ValueError, match="data must be one of"):
        ICaRLSettings.tao("imagenet")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("name", "count"), [("icarl", 10), ("eeil", 9), ("lucir", 10)])
def test_candidates_begin_with_rate_zero(name: str, count: int) -> None:
    settings = settings_of(f"{name} tuned")
    first, *others = settings.candidates()
    assert first.session.learning_rate == 0
    assert len({repr(candidate) for candidate in others}) == count - 1
    assert all(candidate.memory == settings.memory for candidate in others)


def test_all_of_a_plain_network_can_be_trained() -> None:
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
    rival = EEIL(plain, settings_of("eeil tuned", session__trainable="all"), training=fitted("eeil tuned").training)
    rival.fit(*digits().base).add_classes(*digits().sessions[0])
    assert rival.predict_proba(digits().X).shape == (300, 8)


def test_a_function_says_what_is_trained() -> None:
    rival = taught("icarl tuned", 1, session__trainable=lambda network: network.embedding.parameters())
    before, after = (r.state_.model.network.state_dict() for r in (fitted("icarl tuned"), rival))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"embedding.weight", "embedding.bias"}


def test_the_trunk_runs_once_for_student_and_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    trunk = type(network()).trunk

    def counted(self: Any, x: Tensor) -> Tensor:
        seen.append(len(x))
        return trunk(self, x)

    monkeypatch.setattr(type(network()), "trunk", counted)
    taught("icarl tao", 1)
    assert seen == [21, 10, 10, 10, 10]  # memory once, as it is not augmented; then the shots in every step
