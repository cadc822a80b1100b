"""Mutation testing: one small change of the code at a time, and whether a test fails.

    python tests/campaign/mutants.py --seed 1 --count 300    draw mutants, try them, say which survive
    python tests/campaign/mutants.py --seed 1 --show 17      what the mutant number 17 of this seed changes

A mutant is a comparison, an operator, a number or a word of the numerical packages turned into its neighbour. The tests
of its own package are run first, then all others that use it. What was done is a row a mutant in
`build/mutants/SEED.jsonl`; a mutant with a row is not tried again. Mutants that no test can kill stand in
`equivalent.txt`, each with the reason.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parts import read_rows

HERE = Path(__file__).parent


ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "gptree"
EQUIVALENT = HERE / "equivalent.txt"
#: Of these only what computes: a picture of a tree is judged by looking at it.
DRAWN = ("tree/plot.py",)
PACKAGES = ("maths", "inference", "experts", "tree", "model", "incremental")
#: Folders of tests that use all packages, the quick ones first.
USERS = ("incremental", "experts", "model", "inference", "tree", "maths", "estimators", "storage", "cli", "deep")
SECONDS = 900.0

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

    def sources(self) -> tuple[str, str]:
        """The file as it is, and with the change; both without comments."""
        tree = ast.parse((SOURCE / self.file).read_text())
        before = ast.unparse(tree)
        parent, name, index, node = list(places(tree))[self.place]
        _put(parent, name, index, changed(node))
        return before, ast.unparse(ast.fix_missing_locations(tree))

    def difference(self) -> str:
        before, after = self.sources()
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), self.file, self.file, lineterm="", n=2)
        return "\n".join(lines)

    def summary(self) -> str:
        """The changed line before and after, for rows and for the list of equivalent mutants."""
        lines = [line for line in self.difference().splitlines()[2:] if line[0] in "+-"]
        return f"{self.file}: " + " → ".join(line[1:].strip() for line in lines)


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Where a file can change: parent, field, index and node. Not in annotations, errors, assertions or docstrings."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        parent = waiting.pop()
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(node, ast.AST) or _is_talk(node):
                    continue
                if changed(node) is not None:
                    yield parent, name, index, node
                waiting.append(node)


def _is_talk(node: ast.AST) -> bool:
    """Errors, warnings and checks of input, whose wording is not for mutants."""
    call = node.value if isinstance(node, ast.Expr) else node
    named = isinstance(call, ast.Call) and ast.unparse(call.func) in ("require", "warnings.warn", "cast", "overload")
    return named or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom)


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


def attempt(mutant: Mutant, test: Callable[[Path, str], bool]) -> str:
    """ "killed" or "survived"."""
    package = mutant.file.split("/")[0]
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    try:
        shutil.copytree(SOURCE, folder / "gptree", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "gptree" / mutant.file).write_text(mutant.sources()[1])
        own = [package, *(user for user in USERS if user != package)]
        return "killed" if any(test(folder, name) for name in own) else "survived"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fails(folder: Path, tests: str) -> bool:
    """Whether a test of a folder fails with this code, or hangs."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/{tests}"]
    command += os.environ.get("MUTANTS_PYTEST", "").split()
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode > 1 and b"rror" not in done.stdout:  # neither passed nor failed: not the mutant's doing
        raise RuntimeError(done.stdout.decode()[-2000:] + done.stderr.decode()[-2000:])
    return done.returncode != 0


def check_baseline(packages: set[str], jobs: int) -> None:
    """Tests that fail without any mutant would kill every one."""
    named = sorted(packages | set(USERS))
    with ThreadPoolExecutor(jobs) as pool:
        failed = list(pool.map(lambda name: fails(SOURCE.parent, name), named))
    broken = [name for name, bad in zip(named, failed, strict=True) if bad]
    if broken:
        raise SystemExit(f"tests of {', '.join(broken)} fail without any mutant: mend them first.")


def equivalents() -> dict[str, str]:
    """Summaries of mutants that change nothing that can be seen, with the reason."""
    known = {}
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else ():
        if line and not line.startswith("#"):
            summary, _, reason = line.partition(" # ")
            known[summary] = reason
    return known


def campaign(seed: int, count: int, jobs: int) -> list[dict[str, Any]]:
    path = ROOT / "build" / "mutants" / f"{seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = read_rows(path)
    done, known = {row["number"] for row in rows}, equivalents()

    def one(number: int, mutant: Mutant) -> dict[str, Any]:
        begin, summary = time.perf_counter(), mutant.summary()
        outcome = "equivalent" if summary in known else attempt(mutant, fails)
        seconds = round(time.perf_counter() - begin, 1)
        return {"seed": seed, "number": number, "mutant": summary, "outcome": outcome, "seconds": seconds}

    left = [(number, mutant) for number, mutant in enumerate(draw(seed, count)) if number not in done]
    if left:
        check_baseline({mutant.file.split("/")[0] for _, mutant in left}, jobs)
    with path.open("a") as file, ThreadPoolExecutor(jobs) as pool:
        file.write("\n" if rows else "")  # after a line that was cut off
        for future in as_completed([pool.submit(one, *entry) for entry in left]):
            row = future.result()
            rows.append(row)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            if row["outcome"] != "killed":
                print(f"{row['number']} {row['outcome']}: {row['mutant']}", flush=True)
    return [row for row in rows if row["number"] < count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", type=int, metavar="NUMBER")
    given = parser.parse_args()
    if given.show is not None:
        print(draw(given.seed, given.show + 1)[given.show].difference())
        return
    rows = campaign(given.seed, given.count, given.jobs)
    numbers = {name: sum(row["outcome"] == name for row in rows) for name in ("killed", "survived", "equivalent")}
    score = numbers["killed"] / max(1, len(rows) - numbers["equivalent"])
    print(f"{len(rows)} mutants of seed {given.seed}: {numbers}, score {score:.1%}")


if __name__ == "__main__":
    main()
