"""Trials, rows and the loop over them."""

from __future__ import annotations

import json
import math
import pickle
import re
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core import runner
from benchmarks.core.machine import forget_peak, machine, measured, peak_memory, versions
from benchmarks.core.runner import run_trials
from benchmarks.core.store import Rows
from benchmarks.core.trials import DEFAULTS, Row, Trial

TRIAL = Trial("heads", "lda", "digits", 0, {"shots": 5, "grid": (1, 2)})


def row(trial: Trial, **metrics: Any) -> Row:
    return Row(trial, metrics, {"wall": 1.0, "cpu": 2.0}, 10**8, {"python": "3"}, {"cpu": "x"})


def halves(trial: Trial) -> dict[str, float]:
    return {"half": trial.seed / 2}


def holds_memory(trial: Trial) -> dict[str, float]:
    block = np.ones(trial.settings["megabytes"] * 2**17)
    return {"sum": float(block.sum())}


def measures_the_last(trial: Trial) -> dict[str, float]:
    """As the first trial runs, another run appends the rows of the last two; the other trials wait for them."""
    path, end = Path(trial.settings["path"]), time.monotonic() + 60
    if trial.seed == 0:
        rows = Rows(path)
        for seed in (10, 11):
            rows.append(row(Trial("e", "m", "d", seed, trial.settings), elsewhere=True))
    while not path.exists() or path.read_text().count("elsewhere") < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    return {"half": trial.seed / 2}


def fails(trial: Trial) -> dict[str, float]:
    raise RuntimeError(f"seed {trial.seed} fails")


class TestTrial:
    def test_key_depends_on_every_field_and_not_on_order(self):
        same = Trial("heads", "lda", "digits", 0, {"grid": [1, 2], "shots": 5})
        assert same == TRIAL
        assert same.key == TRIAL.key
        assert hash(same) == hash(TRIAL)
        others = [
            Trial("head", "lda", "digits", 0, TRIAL.settings),
            Trial("heads", "knn", "digits", 0, TRIAL.settings),
            Trial("heads", "lda", "clinc", 0, TRIAL.settings),
            Trial("heads", "lda", "digits", 1, TRIAL.settings),
            Trial("heads", "lda", "digits", 0, {"grid": [1, 2], "shots": 6}),
        ]
        assert len({TRIAL.key, *(other.key for other in others)}) == 6

    def test_key_is_the_same_in_every_version(self):
        """Rows that are kept are found by this: a change here makes every finished trial run again."""
        assert Trial("heads", "lda", "digits", 0, {"shots": None}).key == "e4860c0150ad904c"

    def test_it_is_frozen(self):
        with pytest.raises(AttributeError):
            TRIAL.seed = 1  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(TypeError):
            TRIAL.settings["shots"] = 6  # pyright: ignore[reportIndexIssue]

    def test_it_travels(self):
        assert pickle.loads(pickle.dumps(TRIAL)) == TRIAL

    def test_settings_must_be_plain(self):
        with pytest.raises(TypeError):
            Trial("heads", "lda", "digits", 0, {"model": object()})
        with pytest.raises(ValueError):
            Trial("heads", "lda", "digits", 0, {"scale": math.nan})


class TestRows:
    def test_round_trip(self, tmp_path):
        path = tmp_path / "results" / "rows.jsonl"
        rows = Rows(path)
        assert not rows.done(TRIAL)
        rows.append(row(TRIAL, accuracy=np.float32(0.5), classes=np.int64(3)))
        assert rows.done(TRIAL)
        (again,) = Rows(path)
        assert again == next(iter(rows))
        assert again.trial == TRIAL
        assert again.metrics == {"accuracy": 0.5, "classes": 3}
        assert len(path.read_text().splitlines()) == 1

    def test_numbers_that_are_not_finite_stay_what_they_are_and_null_stays_null(self, tmp_path):
        path = tmp_path / "rows.jsonl"
        metrics = {"nll": math.inf, "parts": [{"low": -np.float32(np.inf)}, None], "ece": math.nan, "why": "Infinity?"}
        Rows(path).append(row(TRIAL, **metrics))
        json.loads(path.read_text(), parse_constant=pytest.fail)  # JSON of all readers
        (again,) = Rows(path)
        assert math.isnan(again.metrics["ece"])
        assert {**again.metrics, "ece": 0} == {**metrics, "ece": 0}

    def test_rows_tell_which_defaults_they_are_of(self, tmp_path):
        rows = Rows(tmp_path / "rows.jsonl")
        rows.append(replace(row(TRIAL), defaults=DEFAULTS - 1))
        (old,) = Rows(rows.path)
        assert old.defaults == DEFAULTS - 1
        assert rows.done(TRIAL)
        assert not rows.done(TRIAL, DEFAULTS)
        run_trials([TRIAL], halves, rows)
        assert [r.defaults for r in rows] == [DEFAULTS - 1]
        run_trials([TRIAL], halves, rows, defaults=DEFAULTS)
        assert [r.defaults for r in Rows(rows.path)] == [DEFAULTS]

    def test_methods_that_name_older_defaults_are_not_measured_again(self, tmp_path):
        rows = Rows(tmp_path / "rows.jsonl")
        old = [replace(TRIAL, method=f"mine, defaults {DEFAULTS - k}") for k in (1, 2)]
        for trial in old:
            rows.append(replace(row(trial), defaults=DEFAULTS - 1))
        assert [rows.done(trial, DEFAULTS) for trial in old] == [True, False]

    def test_a_clock_may_not_have_been_read(self, tmp_path):
        rows = Rows(tmp_path / "rows.jsonl")
        rows.append(replace(row(TRIAL), seconds={"wall": 1.0, "cpu": None}))
        assert next(iter(Rows(rows.path))).seconds["cpu"] is None

    def test_the_last_row_of_a_trial_counts(self, tmp_path):
        rows = Rows(tmp_path / "rows.jsonl")
        rows.append(row(TRIAL, accuracy=0.1))
        rows.append(row(TRIAL, accuracy=0.2))
        assert [r.metrics["accuracy"] for r in Rows(rows.path)] == [0.2]

    @pytest.mark.parametrize(
        "damage",
        [
            lambda line: line[: len(line) // 2],
            lambda line: "",
            lambda line: "[1, 2]",
            lambda line: "null",
            lambda line: line.replace('"seed": 0', '"seed": 7'),  # the key no longer fits
            lambda line: line.replace('"metrics"', '"metric"'),
            lambda line: line.replace('"key"', '"kex"'),
            lambda line: line.replace('"metrics": {}', '"metrics": null'),
            lambda line: line.replace('"metrics": {}', '"metrics": [0.5]'),
            lambda line: line.replace('"wall": 1.0, ', ""),
            lambda line: line.replace(f'"defaults": {DEFAULTS}, ', ""),
            lambda line: line.replace(f'"defaults": {DEFAULTS}', '"defaults": "new"'),
            lambda line: line.replace('"cpu": 2.0', '"cpu": "2.0"'),
            lambda line: line.replace('{"wall": 1.0, "cpu": 2.0}', "3.0"),
            lambda line: line.replace('"peak_memory_bytes": 100000000', '"peak_memory_bytes": "much"'),
            lambda line: line.replace('{"python": "3"}', "null"),
            lambda line: line.replace('{"cpu": "x"}', '"x"'),
        ],
    )
    def test_damaged_lines_are_skipped_and_reported(self, tmp_path, damage):
        path = tmp_path / "rows.jsonl"
        other = Trial("heads", "lda", "digits", 1)
        assert damage(row(TRIAL).to_line()) != row(TRIAL).to_line()
        path.write_text(damage(row(TRIAL).to_line()) + "\n" + row(other).to_line() + "\n")
        with pytest.warns(UserWarning, match="line 1"):
            rows = Rows(path)
        assert [r.trial for r in rows] == [other]
        assert len(rows.damaged) == 1

    def test_bytes_that_are_not_text_are_damage(self, tmp_path):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(b"\xff\xfe\x00\n" + row(TRIAL).to_line().encode() + b"\n")
        with pytest.warns(UserWarning, match="line 1"):
            assert len(Rows(path)) == 1

    def test_a_line_cut_off_by_a_crash_does_not_spoil_the_next(self, tmp_path):
        path = tmp_path / "rows.jsonl"
        path.write_text(row(TRIAL).to_line()[:50])
        with pytest.warns(UserWarning, match="damaged"):
            rows = Rows(path)
        rows.append(row(TRIAL, accuracy=0.5))
        with pytest.warns(UserWarning, match="damaged"):
            (again,) = Rows(path)
        assert again.metrics == {"accuracy": 0.5}

    def test_lines_that_are_added_are_read_when_they_are_whole(self, tmp_path):
        rows = Rows(tmp_path / "rows.jsonl")
        Rows(rows.path).append(row(TRIAL, accuracy=0.5))
        assert not rows.done(TRIAL)
        rows.read_on()
        assert rows.done(TRIAL)
        other = Trial("heads", "lda", "digits", 1)
        line = row(other).to_line() + "\n"
        with rows.path.open("a") as file:
            file.write(line[:50])
            file.flush()
            rows.read_on()
            assert not rows.done(other)
            assert rows.damaged == []
            file.write(line[50:])
        rows.read_on()
        assert rows.done(other)
        assert len(rows) == 2

    def test_a_damaged_line_is_reported_once(self, tmp_path):
        path = tmp_path / "rows.jsonl"
        path.write_text(row(TRIAL).to_line()[:50])
        with pytest.warns(UserWarning, match="line 1"):
            rows = Rows(path)
        rows.append(row(TRIAL, accuracy=0.5))
        rows.read_on()
        assert len(rows.damaged) == 1


class TestRunTrials:
    trials = tuple(Trial("e", "m", "d", seed) for seed in range(3))

    def test_finished_trials_are_not_run_again(self, tmp_path):
        ran: list[int] = []

        def function(trial: Trial) -> dict[str, float]:
            if trial.seed == 2 and len(ran) == 2:
                raise KeyboardInterrupt
            ran.append(trial.seed)
            return {"half": trial.seed / 2}

        path = tmp_path / "rows.jsonl"
        with pytest.raises(KeyboardInterrupt):
            run_trials(self.trials, function, Rows(path))
        assert len(Rows(path)) == 2
        ran.append(-1)
        run_trials(self.trials, function, Rows(path))
        assert ran == [0, 1, -1, 2]
        assert [r.metrics["half"] for r in Rows(path)] == [0, 0.5, 1]

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_what_another_run_has_measured_meanwhile_is_not_run(self, tmp_path, n_jobs):
        path = tmp_path / "rows.jsonl"
        trials = [Trial("e", "m", "d", seed, {"path": str(path)}) for seed in range(12)]
        rows = Rows(path)
        run_trials(trials, measures_the_last, rows, n_jobs=n_jobs)
        assert len(rows) == 12
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert sorted(line["trial"]["seed"] for line in lines) == list(range(12))  # each once
        assert {row.trial.seed for row in rows if row.metrics.get("elsewhere")} == {10, 11}

    def test_a_fresh_process_has_its_own_peak(self, tmp_path):
        np.ones(250 * 2**17).sum()  # the parent has held 250 MB more, which the child must not count
        rows = Rows(tmp_path / "rows.jsonl")
        run_trials([Trial("e", "m", "d", 0, {"megabytes": 50})], holds_memory, rows, fresh_process=True)
        (result,) = rows
        assert result.metrics["sum"] == 50 * 2**17
        assert result.peak_memory_bytes is not None
        assert 50 * 2**20 < result.peak_memory_bytes < peak_memory() - 100 * 2**20

    def test_a_failure_in_a_fresh_process_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setattr(runner, "get_context", lambda _: get_context("fork"))  # which need not import anything
        with pytest.raises(RuntimeError, match="seed 0 fails"):
            run_trials(self.trials[:1], fails, Rows(tmp_path / "rows.jsonl"), fresh_process=True)


class TestMachine:
    def test_a_row_says_where_it_ran_and_names_nothing(self, tmp_path):
        rows = Rows(tmp_path / "rows.jsonl")
        run_trials([Trial("e", "m", "d", 4)], halves, rows)
        (line,) = rows.path.read_text().splitlines()
        fields = json.loads(line)
        assert {"python", "commit", "gptree", "torch", "numpy", "gpytorch", "scikit-learn"} == set(fields["versions"])
        assert {"cpu", "cores", "threads", "memory_bytes", "gpu"} == set(fields["machine"])
        assert fields["machine"]["cores"] >= 1
        assert 0 <= fields["seconds"]["wall"] < 60
        assert fields["peak_memory_bytes"] > 10**7
        assert str(Path.home()) not in line

    def test_versions_and_machine_do_not_change(self, monkeypatch):
        monkeypatch.delenv("GPTREE_COMMIT")
        assert versions() == versions()
        assert re.fullmatch(r"[0-9a-f]{12}\+?", str(versions()["commit"] or "0" * 12))  # None where there is no git
        assert machine() == machine()

    def test_measured(self):
        result = measured(lambda n: float(np.ones(n).sum()), 10**6)
        assert result.value == 10**6
        assert result.wall_seconds > 0

    @pytest.mark.skipif(not forget_peak(), reason="the peak of memory cannot be reset here")
    def test_memory_that_was_taken_before_does_not_count(self):
        large = np.ones(2**24)
        before = peak_memory()
        del large
        result = measured(lambda: np.ones(2**20).sum())
        assert result.peak_memory_bytes is not None
        assert result.peak_memory_bytes < before - 2**26

    def test_an_unknown_peak_is_none(self, monkeypatch):
        monkeypatch.setattr("benchmarks.core.machine.forget_peak", lambda: False)
        assert measured(int).peak_memory_bytes is None
