"""The picture of a training shows what the log holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gptree.deep import plot_curves
from gptree.deep.loop.log import read_log, write_log


def a_log(before: int, joint: int, measured: bool = True) -> list[dict[str, Any]]:
    rows = []
    for epoch in range(1, before + joint + 1):
        late = epoch > before
        row = {"epoch": epoch, "stage": "joint" if late else "pre-training", "loss": 1 / epoch, "learning_rate": 0.1}
        if late:
            row |= {"expected_log_likelihood": -1 / epoch, "kl": 0.5, "bound": -1 / epoch - 0.5}
        if measured and epoch % 2 == 0:
            row |= {"accuracy": 0.5, "nll": 1.0, "ece": 0.1}
        rows.append(row)
    return rows


def drawn(log: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Heights of the curves of each panel; the line between the stages has two points at one place and is none."""
    found = {}
    for ax in plot_curves(log).axes:
        lines = [line for line in ax.lines if line.get_linestyle() == "-"]
        found[ax.get_title(loc="left")] = [[float(v) for v in line.get_ydata()] for line in lines]
    return found


def test_every_panel_has_its_curves() -> None:
    found = drawn(a_log(3, 4))
    assert [len(curve) for curve in found["Training loss"]] == [3, 4]
    assert found["Training loss"][0] == [1, 1 / 2, 1 / 3]
    assert [len(curve) for curve in found["Bound, a row"]] == [4, 4]
    assert found["Accuracy, %"] == [[50.0] * 3]
    assert found["Calibration error, %"] == [[10.0] * 3]
    assert found["NLL, nats"] == [[1.0] * 3]


def test_the_stage_change_is_marked_where_there_is_one() -> None:
    for before, joint, marks in ((3, 4, 6), (3, 0, 0), (0, 4, 0)):
        lines = [line for ax in plot_curves(a_log(before, joint)).axes for line in ax.lines]
        dashed = [line.get_xdata()[0] for line in lines if line.get_linestyle() == "--"]
        assert dashed == [before + 0.5] * marks


def test_what_was_not_measured_is_said() -> None:
    texts = [text.get_text() for ax in plot_curves(a_log(3, 0, measured=False)).axes for text in ax.texts]
    assert texts == ["none"] * 4


def test_from_a_folder(tmp_path: Path) -> None:
    write_log(tmp_path, a_log(2, 2))
    assert read_log(tmp_path) == a_log(2, 2)
    plot_curves(tmp_path).savefig(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty"):
        plot_curves([])
    with pytest.raises(ValueError, match=r"log\.jsonl"):
        plot_curves(tmp_path)
