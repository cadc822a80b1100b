"""Mutation testing: one small change of the code at a time, and whether a test fails.

    python tests/campaign/mutants.py --seed 1 --count 300    draw mutants, try them, say which survive
    python tests/campaign/mutants.py --seed 1 --show 17      what the mutant number 17 of this seed changes
    python tests/campaign/mutants.py --seed 1 --page         what was done, added to docs/reliability.md

A mutant is a comparison, an operator, a number or a word of the numerical packages turned into its neighbour. The tests
that execute its line are run (see `covering.py`), those of its own module first. What was done is a row a mutant in
`build/mutants/SEED.jsonl`; a mutant with a row is not tried again. Mutants that no test can kill stand in
`equivalent.txt`, each with the reason. The sums that the page shows are kept in `tests/campaign/mutants.jsonl`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import covering
from covering import Case, Project
from parts import read_rows

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "gptree"
EQUIVALENT = HERE / "equivalent.txt"
SUMS = HERE / "mutants.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
#: Of these only what computes: a picture of a tree is judged by looking at it.
DRAWN = ("tree/plot.py",)
PACKAGES = ("maths", "inference", "experts", "tree", "model", "incremental")
PROJECT = Project(ROOT, SOURCE, PACKAGES, ("", *PACKAGES, "estimators", "storage"))
#: A mutant that so many processor seconds of tests do not see survives; kills come within a third of them.
ENOUGH = 40.0

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
WORDS = {
    "any": "all",
    "min": "max",
    "argmin": "argmax",
    "sum": "mean",
    "zeros": "ones",
    "floor": "ceil",
    "exp": "expm1",
}
WORDS |= {new: old for old, new in WORDS.items()}


def changed(node: ast.AST) -> ast.AST | None:
    """The neighbour of a node, or None if it has none."""
    new: Any = copy.copy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            new.ops = [COMPARISONS[type(op)]()]
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATORS:
            new.op = OPERATORS[type(op)]()
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return None  # the neighbour of −1 is −2, not 1
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value)):
            new.value = value + 1
        case ast.Constant(value=float(value)):
            new.value = 2 * value if value else 1.0
        case ast.Attribute(attr=word) if word in WORDS:
            new.attr = WORDS[word]
        case ast.Call(func=ast.Name(id=word)) if word in ("any", "all", "min", "max"):
            new.func = ast.Name(WORDS[word], ast.Load())
        case _:
            return None
    return new


@dataclass(frozen=True)
class Mutant:
    """One place in one file."""

    file: str
    """Below src/gptree."""
    place: int
    """Among the places of the file that can change."""

    def tree(self) -> ast.Module:
        """The file with the change."""
        tree = ast.parse((SOURCE / self.file).read_text())
        parent, name, index, node = list(places(tree))[self.place]
        _put(parent, name, index, ast.copy_location(changed(node), node))  # type: ignore[type-var]
        return ast.fix_missing_locations(tree)

    def lines(self) -> set[int]:
        """Of the statement around it; none if an import executes it, as it does defaults of functions."""
        tree = ast.parse((SOURCE / self.file).read_text())
        node = list(places(tree))[self.place][3]
        above = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
        chain = [node]
        while chain[-1] in above:
            chain.append(above[chain[-1]])
        statement: Any = next(link for link in chain if isinstance(link, ast.stmt))
        if not any(isinstance(link, ast.FunctionDef) for link in chain if link is not statement):
            return set()
        body = getattr(statement, "body", None)
        end = body[0].lineno - 1 if body else statement.end_lineno
        own: Any = node
        return {statement.lineno, *range(statement.lineno, end + 1), *range(own.lineno, own.end_lineno + 1)}

    def difference(self) -> str:
        before, after = ast.unparse(ast.parse((SOURCE / self.file).read_text())), ast.unparse(self.tree())
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), self.file, self.file, lineterm="", n=2)
        return "\n".join(lines)

    def summary(self) -> str:
        """The changed line before and after, for rows and for the list of equivalent mutants."""
        lines = [line for line in self.difference().splitlines()[2:] if line[0] in "+-"]
        return f"{self.file}: " + " → ".join(line[1:].strip() for line in lines)


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Where a file can change: parent, field, index and node. Not in annotations, errors, docstrings, pieces."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        parent = waiting.pop()
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(node, ast.AST) or _is_talk(node) or _is_piece(node):
                    continue
                if changed(node) is not None:
                    yield parent, name, index, node
                waiting.append(node)


def _is_talk(node: ast.AST) -> bool:
    """Errors, warnings and checks of input, the lengths that `zip` compares among them."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True
    call = node.value if isinstance(node, ast.Expr) else node
    named = isinstance(call, ast.Call) and ast.unparse(call.func) in ("require", "warnings.warn", "cast", "overload")
    return named or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom)


def _is_piece(node: ast.AST) -> bool:
    """`max(1, room // each)`: how much is done at a time, which changes time and memory and no number."""
    match node:
        case ast.Call(func=ast.Name("max"), args=[ast.Constant(1), ast.BinOp(op=ast.FloorDiv())]):
            return True
        case ast.Call(func=ast.Name("max"), args=[ast.BinOp(op=ast.FloorDiv()), ast.Constant(1)]):
            return True
    return False


def _put(parent: ast.AST, name: str, index: int | None, node: Any) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def draw(seed: int, count: int) -> list[Mutant]:
    """Mutants without replacement, every place as likely as any other; more of a seed begin with the same."""
    every = []
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            if str(path.relative_to(SOURCE)) in DRAWN:
                continue
            found = sum(1 for _ in places(ast.parse(path.read_text())))
            every += [Mutant(str(path.relative_to(SOURCE)), place) for place in range(found)]
    random.Random(seed).shuffle(every)
    return every[:count]


# ---------------------------------------------------------------------------------------------------------- trying


def chosen(mutant: Mutant, every: list[Case]) -> list[Case]:
    """Tests that can see the mutant: those of its own module, then of its package, quick files and tests first."""
    lines, package, stem = mutant.lines(), mutant.file.split("/")[0], Path(mutant.file).stem

    def sees(test: Case) -> bool:
        executed = test.lines.get(mutant.file, set())
        return bool(lines & executed if lines else executed or Path(test.file).parent.name in ("tests", package))

    found = [test for test in every if sees(test)]
    seconds = {file: sum(test.seconds for test in found if test.file == file) for file in {t.file for t in found}}

    def order(test: Case) -> tuple[Any, ...]:
        path, near = Path(test.file), package if lines else "tests"
        return (
            bool(lines) and stem not in path.stem,
            path.parent.name != near,
            seconds[test.file],
            test.file,
            test.seconds,
        )

    spent, enough = 0.0, []
    for test in sorted(found, key=order):
        spent += test.seconds
        if spent < ENOUGH:
            enough.append(test)
    return enough


def killer(mutant: Mutant, every: list[Case]) -> str:
    """The test that fails with a mutant, or what else ends it; empty if nothing does."""
    tests = chosen(mutant, every)
    code = compile(mutant.tree(), str(SOURCE / mutant.file), "exec")
    return covering.first_failure(PROJECT, tests, (mutant.file, code)) if tests else ""


def broken(killers: list[Case]) -> set[str]:
    """Of tests that killed mutants, those that fail without any: they are no measure."""
    found = set[str]()
    while name := covering.first_failure(PROJECT, [test for test in killers if test.name not in found], None):
        bad = {test.name for test in killers if name in (test.name, test.file)}
        if not bad:
            raise SystemExit(f"without any mutant there is {name}: mend it first.")
        found |= bad
    return found


def equivalents() -> dict[str, str]:
    """Summaries of mutants that change nothing that can be seen, with the reason."""
    known = {}
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else ():
        if line and not line.startswith("#"):
            summary, _, reason = line.partition(" # ")
            known[summary] = reason
    return known


def campaign(seed: int, count: int, jobs: int) -> list[dict[str, Any]]:
    """The rows of all mutants; those without one are tried."""
    path = ROOT / "build" / "mutants" / f"{seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, drawn = read_rows(path), list(enumerate(draw(seed, count)))
    if {number for number, _ in drawn} <= {row["number"] for row in rows}:
        return rows[:count]
    covering.prepare(PROJECT)
    every = covering.cases(PROJECT, jobs)
    while left := [entry for entry in drawn if entry[0] not in {row["number"] for row in rows}]:
        with path.open("w") as file, ThreadPoolExecutor(jobs) as pool:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            for future in as_completed([pool.submit(_row, seed, *entry, every) for entry in left]):
                rows.append(row := future.result())
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                if row["outcome"] != "killed":
                    print(f"{row['number']} {row['outcome']}: {row['mutant']}", flush=True)
        bad = broken([test for test in every if test.name in {row["by"] for row in rows}])
        every = [test for test in every if test.name not in bad]
        rows = [row for row in rows if row["by"] not in bad]
    return rows


def _row(seed: int, number: int, mutant: Mutant, every: list[Case]) -> dict[str, Any]:
    begin, summary = time.perf_counter(), mutant.summary()
    by = "" if summary in equivalents() else killer(mutant, every)
    outcome = "equivalent" if summary in equivalents() else "killed" if by else "survived"
    seconds = round(time.perf_counter() - begin, 1)
    return {"seed": seed, "number": number, "mutant": summary, "outcome": outcome, "by": by, "seconds": seconds}


# -------------------------------------------------------------------------------------------------------- the page


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What came of the mutants of a seed."""
    numbers = {name: sum(row["outcome"] == name for row in rows) for name in ("killed", "survived", "equivalent")}
    survivors = [row["mutant"] for row in rows if row["outcome"] == "survived"]
    score = numbers["killed"] / max(1, len(rows) - numbers["equivalent"])
    named = {"seed": rows[0]["seed"], "mutants": len(rows), **numbers, "score": round(score, 4)}
    return {**named, "hours": round(sum(row["seconds"] for row in rows) / 3600, 2), "survivors": survivors}


def page(sums: list[dict[str, Any]]) -> str:
    """The table of the page, and the survivors of the last seed by name; those of others stay in the file."""
    lines = [
        "| seed | mutants | killed | equivalent | survived | score |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in sums:
        numbers = " | ".join(str(row[name]) for name in ("seed", "mutants", "killed", "equivalent", "survived"))
        lines.append(f"| {numbers} | {row['score']:.1%} |")
    survivors = [f"- ``{name}``" for name in sums[-1]["survivors"]]
    return "\n".join([*lines, *(["", "Survivors of the last seed:", "", *survivors] if survivors else [])])


BEGIN, END = "<!-- mutants: made by `python tests/campaign/mutants.py --page` -->", "<!-- end of mutants -->"


def write_page(sums: list[dict[str, Any]]) -> None:
    """Put the table between its marks, and keep the sums."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{page(sums)}\n{END}{rest.split(END)[1]}")
    SUMS.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in sums))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", type=int, metavar="NUMBER")
    parser.add_argument("--page", action="store_true", help="add this seed to docs/reliability.md")
    given = parser.parse_args()
    if given.show is not None:
        print(draw(given.seed, given.show + 1)[given.show].difference())
        return
    sums = summed(campaign(given.seed, given.count, given.jobs))
    if given.page:
        write_page([*(row for row in read_rows(SUMS) if row["seed"] != given.seed), sums])
    print(json.dumps({name: value for name, value in sums.items() if name != "survivors"}))


if __name__ == "__main__":
    main()
