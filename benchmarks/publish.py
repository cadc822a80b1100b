"""Fill the tables of README and docs from the rows: `python -m benchmarks.publish`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks import gibbs_speed, heads, novelty
from benchmarks.rows import Row, Rows
from benchmarks.tables import Summary

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
CAPTION = """\
Accuracy % / negative log-likelihood / expected calibration error %, mean over three to five draws, all classes, frozen
embeddings; the best of each is bold. The paper's tree is not run beyond 3,000 points."""


def short_table(rows: Iterable[Row]) -> str:
    """Accuracy / NLL / ECE with all classes; the best of each is bold."""
    rows = heads.of_experiment(rows, "heads")
    lines = [["data, shots a class", *SHOWN], ["---"] * (1 + len(SHOWN))]
    for data, shots in TASKS:
        settings = {"classes": None, "shots": shots}
        task = [row for row in rows if row.trial.data == data and dict(row.trial.settings) == settings]
        cells = []
        for method in SHOWN.values():
            own = [row for row in task if row.trial.method == method]
            cells.append([Summary.of(own, column).mean for column in heads.COLUMNS[:3]])
        best = [
            choose(cell[i] for cell in cells if not math.isnan(cell[i])) for i, choose in enumerate((max, min, min))
        ]
        texts = [_cell(cell, best) for cell in cells]
        lines.append([f"{data}, {shots}", *texts])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{CAPTION}\n"


def _cell(values: list[float], best: list[float]) -> str:
    if any(math.isnan(value) for value in values):
        return "–"
    texts = [f"{values[0]:.1f}", f"{values[1]:.3f}", f"{values[2]:.1f}"]
    marked = (f"**{text}**" if value == top else text for text, value, top in zip(texts, values, best, strict=True))
    return " / ".join(marked)


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
    fill(ROOT / "README.md", {"heads": short_table(rows)})
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
        },
    )
    full = ROOT / "docs" / "tables" / "heads.md"
    full.parent.mkdir(exist_ok=True)
    full.write_text(f"# Heads on frozen features: all of it\n\n{heads.table(rows, 'heads')}", encoding="utf-8")


if __name__ == "__main__":
    main()
