"""Structure-aware mutation of every file that the library reads: models, checkpoints, runs and tables of data.

    python tests/campaign/mutations.py 17          # one mutation again, by its seed
    python tests/campaign/mutations.py 0 5000      # seeds 0 … 4999

A seed chooses a case of the corpus and changes its files, see `file_changes.py`. They are read, and what was read is
looked at. Allowed is the documented error, or a model that gives possible numbers; not a raw error, a hang, or
gigabytes. Seeds are tried in a child process with limits on its memory and time, so that a failure is that of one seed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from corpus import WORK, Corpus, Impossible, written
from file_changes import mutated
from parts import Part

#: Seconds of processor time of one seed, bytes that a child may have beyond what it begins with, and bytes that one
#: seed may take.
SECONDS, CHILD_BYTES, SEED_BYTES = 20, 2**32, 2**29
#: Seeds that one child tries.
SEEDS_A_CHILD = 100


def check_mutation(seed: int, corpus: Corpus) -> str:
    """Try one seed: "refused" or "read". Whatever must not be is an `Impossible` that says how to do it again."""
    (outcome,) = tried([seed], corpus)
    if outcome not in ("refused", "read"):
        raise Impossible(f"python tests/campaign/mutations.py {seed}: {outcome}")
    return outcome


def check_block(block: int, corpus: Corpus, size: int = SEEDS_A_CHILD) -> Counter[str]:
    """Try the seeds of a block, `size` of them, and count their outcomes; the first failure is raised."""
    seeds = range(block * size, (block + 1) * size)
    outcomes = tried(seeds, corpus)
    for seed, outcome in zip(seeds, outcomes, strict=True):
        if outcome not in ("refused", "read"):
            raise Impossible(f"python tests/campaign/mutations.py {seed}: {outcome}")
    return Counter(outcomes)


def tried(seeds: Sequence[int], corpus: Corpus) -> list[str]:
    """The outcomes of seeds, each in a child process; one that ends its child is followed by another child."""
    outcomes: list[str] = []
    for seed in seeds:
        corpus.case(_case_name(seed, corpus))  # made here, for all children
    while len(outcomes) < len(seeds):
        part = seeds[len(outcomes) : len(outcomes) + SEEDS_A_CHILD]
        outcomes += _in_child(part, corpus)
    return outcomes


def _in_child(seeds: Sequence[int], corpus: Corpus) -> list[str]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w", encoding="utf-8") as out:
                _try_all(seeds, corpus, lambda outcome: print(json.dumps(outcome), file=out, flush=True))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as results:
        outcomes = [json.loads(line) for line in results]
    _, status = os.waitpid(child, 0)
    if len(outcomes) < len(seeds):  # it ended before its time
        number = os.waitstatus_to_exitcode(status)
        outcomes.append("hangs" if number in (-signal.SIGPROF, -signal.SIGALRM) else f"ends the process ({number})")
    return outcomes


def _try_all(seeds: Sequence[int], corpus: Corpus, report: Callable[[str], None]) -> None:
    torch.set_num_threads(1)
    limit = _memory("VmSize") + CHILD_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        for seed in seeds:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(int(20 * SECONDS) + 1)
            report(_outcome(seed, corpus, Path(folder)))


def _memory(name: str) -> int:
    """Bytes of virtual memory: VmSize, or VmPeak, the most so far."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def _outcome(seed: int, corpus: Corpus, folder: Path) -> str:
    case = corpus.case(_case_name(seed, corpus))
    random = np.random.default_rng(seed)
    random.random()  # which chose the case
    files, what, settings = mutated(case, random)
    before = _memory("VmPeak")
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            case.look(written(files, folder / "files"), random, not settings)
        outcome = "read"
    except case.documented as error:
        outcome = "refused"
        if any(word in str(error) for word in ("allocate", "MemoryError")):
            outcome = f"{case.name}, {what}: asks for too much memory: {error}"
    except Impossible as error:
        outcome = f"{case.name}, {what}: {error}"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        outcome = f"{case.name}, {what}: raw {type(error).__name__} at {where}: {error}"
    taken = _memory("VmPeak") - before
    if taken > SEED_BYTES and outcome in ("read", "refused"):
        outcome = f"{case.name}, {what}: takes {taken / 2**20:.0f} MB"
    return outcome[:600]


def _case_name(seed: int, corpus: Corpus) -> str:
    return corpus.names[int(np.random.default_rng(seed).random() * len(corpus.names))]


_CORPUS = Corpus()


def check_files(unit: int, folder: Path) -> int:
    """One block of mutated files."""
    return sum(check_block(unit, _CORPUS).values())


PARTS = (
    Part(
        "files",
        "Files of every kind that is read, mutated by what they mean, checksums computed anew",
        1_000,
        check_files,
        seconds=1200.0,
        share=(),
    ),
)


def main(first: int, count: int) -> int:
    """Try seeds and print tries, outcomes and failures; how many of them failed."""
    corpus, failures, outcomes = Corpus(), 0, Counter()
    torch.set_num_threads(1)
    for start in range(first, first + count, SEEDS_A_CHILD):
        seeds = range(start, min(start + SEEDS_A_CHILD, first + count))
        for seed, outcome in zip(seeds, tried(seeds, corpus), strict=True):
            failed = outcome not in ("refused", "read")
            failures += failed
            outcomes["failed" if failed else outcome] += 1
            if failed:
                print(f"{seed}: {outcome}", flush=True)
    print(f"{count} tries, {failures} failures: {dict(outcomes)}")
    return failures


if __name__ == "__main__":
    numbers = [int(number) for number in sys.argv[1:]]
    sys.exit(1 if main(numbers[0], numbers[1] if len(numbers) > 1 else 1) else 0)
