"""Fill the tables of README and docs from the rows: `python -m benchmarks.publish`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import (
    deep_step,
    fscil_features,
    fscil_speed,
    gibbs_speed,
    heads,
    labelling,
    million_rows,
    novelty,
    open_set,
    sparse_cap,
    sparse_forms,
)
from benchmarks.experiment import RESULTS
from benchmarks.experiments import deep_lines, deep_shown
from benchmarks.rows import Row, Rows
from benchmarks.tables import Better, Column, Summary, best_of_columns
from gptree.protocols import plot_curves, summary

ROOT = Path(__file__).parent.parent
SHOWN = {
    "class mean": "rival: class-mean",
    "logistic regression": "rival: logistic",
    "RanPAC": "rival: ranpac",
    "the paper's tree": "paper's tree",
    "gptree's experts alone": "pool of experts",
    "**gptree forest**": "gptree forest",
}
TASKS = (("banking77", 5), ("banking77", 30), ("clinc150", 5), ("clinc150", 30), ("cub200", 5), ("cub200", 30))
ARRIVING = {
    "class mean": "rival: class-mean",
    "logistic regression on what is kept": "rival: logistic-memory",
    "RanPAC, class-balanced": "rival: ranpac-balanced",
    "LDA, novel means shrunk (TEEN)": "rival: lda-teen",
    "the same on random features": "rival: rf-lda-teen",
    "the paper's tree": "paper, shared root",
    "**gptree forest**": "forest, shared root",
}
ARRIVING_CAPTION = """\
Accuracy % / harmonic mean of the accuracies on base and novel classes % / negative log-likelihood / expected
calibration error %, over all classes after the last session, mean over five seeds; the best of each is bold. CUB: 100
base classes and 10 sessions of 10; CLINC150: 100 and 10 × 5; Banking77: 37 and 8 × 5; five shots a novel class, five
examples kept of a base class."""
CAPTION = """\
Accuracy % / negative log-likelihood / expected calibration error %, mean over three to five draws, all classes, frozen
embeddings; the best of each is bold. The paper's tree is not run beyond 3,000 points."""

TRAINED = {
    "softmax": deep_lines.SOFTMAX_CUT,
    "**GP-Tree**": deep_lines.OURS_CUT,
    "GP-Tree, the network left to the bound": deep_lines.ALONE,
}
TRAINED_CAPTION = f"""\
Accuracy % / negative log-likelihood / expected calibration error % on the test set after {deep_lines.LONG} epochs;
the best of each is bold. Softmax and GP-Tree are both calibrated, on 2 % of the training pictures, and see pictures
with squares cut out; the last line has neither, and no cross-entropy beside the bound, as in the paper."""


def short_table(rows: Iterable[Row]) -> str:
    """Accuracy / NLL / ECE with all classes; the best of each is bold."""
    rows = heads.of_experiment(rows, "heads")
    lines = [["data, shots a class", *SHOWN]]
    for data, shots in TASKS:
        settings = {"classes": None, "shots": shots}
        task = [row for row in rows if row.trial.data == data and dict(row.trial.settings) == settings]
        of_method = [[row for row in task if row.trial.method == method] for method in SHOWN.values()]
        lines.append([f"{data}, {shots}", *_cells(_means(of_method, heads.COLUMNS))])
    return _table(lines, CAPTION)


def deep_table(rows: Iterable[Row]) -> str:
    """Accuracy / NLL / ECE of the long trainings; the best of each is bold."""
    rows = [row for row in rows if row.trial.settings["epochs"] == deep_lines.LONG]
    columns = [["ResNet-18", *TRAINED]]
    for data, name in deep_lines.NAMES.items():
        own = [row for row in rows if row.trial.data == data]
        of_method = [[row for row in own if row.trial.method == method] for method in TRAINED.values()]
        seeds = " / ".join(str(len(some)) for some in of_method)
        columns.append([f"{name}, seeds {seeds}", *_cells(_means(of_method, deep_shown.COLUMNS))])
    return _table(list(zip(*columns, strict=True)), TRAINED_CAPTION)


def arriving_table(rows: Iterable[Row]) -> str:
    """Accuracy / harmonic mean / NLL / ECE after the last session; the best of each is bold."""
    found = {(line["method"], line["data"]): line for line in summary(list(fscil_features.session_rows(rows)))}
    metrics = {"last": 100, "harmonic_mean": 100, "nll": 1, "ece": 100}
    columns = [["method", *ARRIVING]]
    for data in fscil_features.PROTOCOLS:
        of_method = [found[method, data] for method in ARRIVING.values()]
        means = [[scale * line[metric].mean for metric, scale in metrics.items()] for line in of_method]
        columns.append([data, *_cells(means, (1, 1, 3, 1), (max, max, min, min))])
    return _table(list(zip(*columns, strict=True)), ARRIVING_CAPTION)


def _means(of_method: list[list[Row]], columns: Sequence[Column]) -> list[list[float]]:
    """Of each method, accuracy, NLL and ECE, which are the first columns."""
    return [[Summary.of(rows, column).mean for column in columns[:3]] for rows in of_method]


def _cells(
    means: list[list[float]], digits: Sequence[int] = (1, 3, 1), better: Sequence[Better] = (max, min, min)
) -> list[str]:
    """Of one task, a cell a method: its numbers, the best of each in bold; a dash where it has none."""
    known = [[Summary(mean, math.nan, int(not math.isnan(mean))) for mean in line] for line in means]
    cells = best_of_columns(known, digits, better)
    return [" / ".join(cell) if line[0].count else "–" for cell, line in zip(cells, known, strict=True)]


def _table(lines: Sequence[Sequence[str]], caption: str) -> str:
    head, *others = lines
    table = "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *others))
    return f"{table}\n\n{caption}\n"


def fill(path: Path, tables: dict[str, str]) -> None:
    """Put each table between its markers, <!-- table:name --> and <!-- /table -->."""
    text = path.read_text(encoding="utf-8")
    for name, table in tables.items():
        pattern = rf"(<!-- table:{name} -->\n).*?(<!-- /table -->)"
        text, count = re.subn(pattern, lambda m, t=table: f"{m[1]}{t}{m[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{path.name} has {count} markers for the table {name!r}; it needs one.")
    path.write_text(text, encoding="utf-8")


def main() -> None:
    rows = Rows(heads.RESULTS / "heads.jsonl")
    arriving = list(Rows(fscil_features.RESULTS))
    deep = deep_table(Rows(RESULTS / f"{deep_lines.NAME}.jsonl"))
    fill(ROOT / "README.md", {"heads": short_table(rows), "fscil": arriving_table(arriving), "deep_kernels": deep})
    fill(
        ROOT / "docs" / "benchmarks.md",
        {
            "gibbs_speed": gibbs_speed.table(list(Rows(gibbs_speed.RESULTS))),
            "contribution": heads.contribution(rows),
            "one_shot": heads.table(rows, "one-shot"),
            "variants": heads.table(rows, "variants"),
            "unequal": heads.table(rows, "unequal"),
            "speed": heads.table(rows, "speed"),
            "novelty": novelty.table(list(Rows(novelty.RESULTS))),
            "open_set": open_set.table(list(Rows(open_set.RESULTS))),
            "labelling": labelling.table(list(Rows(labelling.RESULTS))),
            "fscil_speed": fscil_speed.table(Rows(fscil_speed.RESULTS)),
            "deep_step": deep_step.table(list(Rows(deep_step.RESULTS))),
            "million_rows": million_rows.table(Rows(million_rows.RESULTS)),
            "sparse_cap": sparse_cap.table(list(Rows(sparse_cap.RESULTS))),
            "sparse_forms": sparse_forms.rounding_table(Rows(sparse_forms.RESULTS)),
            "sparse_forms_step": sparse_forms.step_table(Rows(sparse_forms.RESULTS)),
            **{f"fscil_{data}": fscil_features.table(arriving, data) for data in fscil_features.PROTOCOLS},
        },
    )
    shown = [row for row in fscil_features.session_rows(arriving) if row["method"] in ARRIVING.values()]
    plot_curves([row for row in shown if row["data"] == "cub200"], ROOT / "docs" / "pictures" / "sessions.png")
    full = ROOT / "docs" / "tables" / "heads.md"
    full.parent.mkdir(exist_ok=True)
    full.write_text(f"# Heads on frozen features: all of it\n\n{heads.table(rows, 'heads')}", encoding="utf-8")


if __name__ == "__main__":
    main()
