"""The page about a run: what it holds, its numbers against plain loops, damage, and a real browser."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from matplotlib.figure import Figure

from gptree.protocols.markup import escaped
from gptree.protocols.plots import method_style
from gptree.protocols.report import write_report
from gptree.tree import ClassTree

METHODS = ("forest", "class mean", "<b>logistic</b> & co")
SEEDS, SESSIONS, BASE, WAY = 3, 5, 8, 2
LABELS = [
    *("ant", "bee", "<script>alert(1)</script>", 'cat "the" cat', "dog & fox", "eel\nof two lines", "漢字", "${math}$"),
    *(f"novel number {i}" for i in range(7)),
    "a\x00b \ud800 <i>",
]

Row = dict[str, Any]


def made_up_row(rng: np.random.Generator, method: int, seed: int, session: int) -> Row:
    base = 0.9 - 0.03 * session - 0.04 * method + 0.01 * rng.standard_normal()
    later = [0.7 - 0.05 * method + 0.05 * rng.standard_normal() for _ in range(session)]
    novel = float(np.mean(later)) if later else None
    return {
        "data": "animals & <plants>",
        "method": METHODS[method],
        "settings": {"exemplars": 5, "note": "<u>"},
        "seed": seed,
        "session": session,
        "classes": BASE + WAY * session,
        "accuracy": base if novel is None else (BASE * base + WAY * session * novel) / (BASE + WAY * session),
        "base_accuracy": base,
        "novel_accuracy": novel,
        "session_accuracy": [base, *later],
        "harmonic_mean": None if novel is None else 2 * base * novel / (base + novel),
        "forgetting": None if novel is None else 0.03 * session + 0.01 * rng.standard_normal(),
        "nll": 0.4 + 0.1 * session + 0.2 * method + 0.02 * rng.random(),
        "ece": 0.02 + 0.03 * method + 0.005 * rng.random(),
        "open_auroc": None if session == SESSIONS - 1 else 0.8 + 0.05 * rng.random(),
        "seconds_add": 0.3 + 0.1 * rng.random(),
        "seconds_predict": 0.05,
        "bytes": None if method == 2 else 1000 * (BASE + WAY * session) * (1 + method),
        "versions": {"gptree": "0.1", "gpu": None},
        "machine": {"cpu": "Abacus <9>", "cores": 2},
    }


def made_up_detail(rng: np.random.Generator, method: int, seed: int) -> Row:
    n = len(LABELS)
    pairs = [(a, b, int(rng.integers(1, 30))) for a, b in rng.integers(n, size=(30, 2)).tolist() if a != b]
    sure = [(b + rng.uniform(0.1, 1.0)) / 15 for b in range(3, 15)]
    bins = [[confidence, max(confidence - 0.1 * rng.random(), 0.0), int(rng.integers(1, 50))] for confidence in sure]
    return {
        "method": METHODS[method],
        "seed": seed,
        "reliability": [[None, None, 0]] * 3 + bins,
        "confusion": [[LABELS[a], LABELS[b], count] for a, b, count in sorted(pairs, key=lambda pair: -pair[2])],
        "mistakes": [[f"row <{i}>", LABELS[i], LABELS[0], 0.9 - i / 100 - seed / 1000] for i in range(1, 3 + seed)],
        "labels": LABELS,
        "n_base": BASE,
        "session_of": [0] * BASE + [1 + i // WAY for i in range(n - BASE)],
        "tree": chain(n).to_json() if method < 2 else None,
    }


def chain(n: int) -> ClassTree:
    return ClassTree.from_nodes(range(n), [(i, i + 1, n) for i in range(n - 1)])


def made_up_rows(seeds: int = SEEDS, sessions: int = SESSIONS) -> list[Row]:
    rng = np.random.default_rng(0)
    return [made_up_row(rng, m, s, k) for s in range(seeds) for m in range(len(METHODS)) for k in range(sessions)]


def made_up_details() -> list[Row]:
    rng = np.random.default_rng(1)
    return [made_up_detail(rng, method, seed) for method in range(len(METHODS)) for seed in range(SEEDS)]


def write_run(folder: Path, rows: list[Row], details: list[Row] | None = None, extra: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + extra, encoding="utf-8")
    if details is not None:
        (folder / "details.jsonl").write_text("".join(json.dumps(d) + "\n" for d in details), encoding="utf-8")
    return folder


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the words and tables alone: drawing is most of the work."""
    for module in ("markup", "report_charts"):
        monkeypatch.setattr(f"gptree.protocols.{module}.inline_svg", lambda *_, **__: "")
    axes = MagicMock()
    axes.figure.figure = Figure()
    drawing = {"axes": axes, "plot_tree": Figure(), "plot_reliability": None, "draw_trade_off": None}
    for name, result in {**drawing, "draw_confusion": None}.items():
        monkeypatch.setattr(f"gptree.protocols.report_charts.{name}", lambda *_, result=result, **__: result)


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("run"), made_up_rows(), made_up_details())
    return write_report(folder)


@pytest.fixture(scope="module")
def page(page_path: Path) -> Page:
    return Page(page_path.read_text(encoding="utf-8"))


class Page(HTMLParser):
    """A page that was read strictly: every element is closed, in order."""

    VOID = ("meta", "br")

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.markup = markup
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # the innermost element, and its text
        self.tables: dict[str, list[list[str]]] = {}  # caption → rows of cells
        self._table: list[list[str]] = []
        self._caption = ""
        self.feed(markup)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self._table, self._caption = [], ""
        elif tag == "tr":
            self._table.append([])
        elif tag in ("td", "th"):
            self._table[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "table":
            self.tables[self._caption] = self._table

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))
        if "caption" in self.open:
            self._caption += data
        elif "td" in self.open or "th" in self.open:
            self._table[-1][-1] += data

    @property
    def words(self) -> str:
        return " ".join(text for tag, text in self.texts if tag != "style")

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


# ----------------------------------------------------------------------------------------------------------- content


def test_page_is_beside_the_rows_or_where_it_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", made_up_rows(seeds=1, sessions=2), made_up_details()[:1])
    assert write_report(run) == run / "report.html"
    elsewhere = write_report(str(run), str(tmp_path / "page.html"))
    assert elsewhere.read_bytes() == (run / "report.html").read_bytes()  # nothing on it depends on time or place
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_report(run, tmp_path / "deep" / "page.html")
    assert not (tmp_path / "deep").exists()


def test_page_needs_nothing_else(page: Page) -> None:
    assert page.markup.startswith("<!DOCTYPE html>")
    assert not page.count("script") + page.count("link") + page.count("img") + page.count("iframe")
    assert not re.search(r"(src|href)=[\"'](?!#)|url\((?!#)|@import|https?:", page.markup)
    assert page.count("style") == 1  # a style sheet inside a picture would rule the whole page


def test_every_name_is_there_and_harmless(page: Page) -> None:
    for label in LABELS[:8]:
        assert " ".join(label.split()) in page.words
    for name in (*METHODS, "animals & <plants>", "cpu Abacus <9>, cores 2", "gptree 0.1", "note <u>"):
        assert name in page.words
    assert "a\ufffdb \ufffd <i>" in page.words
    assert not page.count("b") + page.count("script") + page.count("u") + page.count("i")


def test_figures_say_what_they_are(page: Page) -> None:
    assert page.count("figure") == page.count("figcaption") >= 15
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        if tag == "svg":
            named = (attributes.get("aria-labelledby") or "").split()
            assert len(named) == 2 or attributes.get("aria-hidden") == "true"
            assert set(named) <= set(ids)
        for use in ("href", "clip-path"):
            if use in attributes:
                assert (attributes[use] or "").removeprefix("url(").strip("#)") in ids


def test_the_tree_marks_novel_classes(page: Page) -> None:
    trees = page.markup[page.markup.index("tree-0-title") :]
    bold = re.findall(r'<text style="font-weight: 700[^>]*>([^<]*)<', trees)
    assert bold == 2 * [*(f"novel number {i}" for i in range(7)), "a\ufffdb \ufffd &lt;i&gt;"]  # two methods
    assert page.words.count("forest, seed 0: 16 classes, 8 of them novel") == 2  # caption and title


def test_a_method_has_one_look() -> None:
    looks = {(look["color"], look["marker"], look["linestyle"]) for look in map(method_style, range(50))}
    assert len(looks) == 50


def test_labels_are_cleaned() -> None:
    assert escaped("a\n b\t<c>&\"'\x07\ud800") == "a b &lt;c&gt;&amp;&quot;&#x27;\ufffd\ufffd"


# ---------------------------------------------------------------------------------------------------------- numbers


def slow_estimate(values: list[float | None], scale: float, decimals: int) -> str:
    """Mean and standard error by plain loops."""
    if not values or None in values:
        return "–"
    numbers = [scale * value for value in values if value is not None]
    mean = sum(numbers) / len(numbers)
    if len(numbers) == 1:
        return f"{mean:.{decimals}f}"
    squares = sum((number - mean) ** 2 for number in numbers)
    return f"{mean:.{decimals}f} ± {math.sqrt(squares / (len(numbers) - 1) / len(numbers)):.{decimals}f}"


def slow_run_numbers(run: list[Row]) -> list[float | None]:
    """Of one method and seed: last, average, drop, harmonic mean, forgetting, NLL, ECE, open AUROC."""
    run = sorted(run, key=lambda row: row["session"])
    total = 0.0
    for row in run:
        total += row["accuracy"]
    known = [row["open_auroc"] for row in run if row["open_auroc"] is not None]
    last = run[-1]
    return [
        *(last["accuracy"], total / len(run), run[0]["accuracy"] - last["accuracy"]),
        *(last["harmonic_mean"], last["forgetting"], last["nll"], last["ece"], sum(known) / len(known)),
    ]


def test_summary_equals_a_slow_twin(page: Page) -> None:
    header, *lines = page.tables["Every method over all sessions"]
    assert header[:3] == ["method", "seeds", "Last accuracy % ↑"]
    assert [line[0] for line in lines] == list(METHODS)
    rows = made_up_rows()
    for line in lines:
        runs = [[row for row in rows if (row["method"], row["seed"]) == (line[0], seed)] for seed in range(SEEDS)]
        numbers = [slow_run_numbers(run) for run in runs]
        for i, cell in enumerate(line[2:10]):
            scale, decimals = (1, 3) if i == 5 else (100, 1)
            assert cell == slow_estimate([number[i] for number in numbers], scale, decimals), header[2 + i]
        seconds = [sum(row["seconds_add"] for row in run) for run in runs]
        assert line[10] == slow_estimate(list(seconds), 1, 2)
    assert [line[11] for line in lines] == ["16.0 ± 0.0", "32.0 ± 0.0", "–"]


def test_best_means_are_bold(page: Page) -> None:
    body = page.markup.split("<tbody>")[1].split("</tbody>")[0]
    cells = [re.findall(r"<td>(.*?)</td>", line)[1:] for line in body.split("</tr>")[:-1]]
    for column, best in zip(zip(*cells, strict=True), (max, max, min, max, min, min, min, max, min, min), strict=True):
        means = [re.sub(r"</?strong>", "", cell).split("<small>")[0] for cell in column]
        goal = best(float(mean) for mean in means if mean != "–")
        for cell, mean in zip(column, means, strict=True):
            assert ("<strong>" in cell) == (mean != "–" and float(mean) == goal)


def test_session_tables_equal_a_slow_twin(page: Page) -> None:
    rows = made_up_rows()
    for method in METHODS:
        header, *lines = page.tables[f"{method}, session by session"]
        for name, key in (("Accuracy on novel classes %", "novel_accuracy"), ("Average forgetting %", "forgetting")):
            for line in lines:
                own = [row[key] for row in rows if (row["method"], row["session"]) == (method, int(line[0]))]
                assert line[header.index(name)] == slow_estimate(own, 100, 1)


def test_reliability_pools_the_seeds(page: Page) -> None:
    for method in METHODS:
        bins: dict[int, list[list[float]]] = {}
        for detail in made_up_details():
            if detail["method"] == method:
                for b, one in enumerate(detail["reliability"]):
                    bins.setdefault(b, []).append(one)
        gap = rows = 0.0
        for one in bins.values():
            count = sum(n for *_, n in one)
            if count:
                gap += abs(sum(n * c for c, _, n in one) - sum(n * a for _, a, n in one))
                rows += count
        assert f"{method}: ECE {100 * gap / rows:.1f} %" in page.words


def test_curves_are_where_the_numbers_are(page: Page) -> None:
    rows = made_up_rows()
    ends = [np.mean([r["accuracy"] for r in rows if (r["method"], r["session"]) == (m, 4)]) for m in METHODS]
    last = "; ".join(f"{method} {100 * end:.1f}" for method, end in zip(METHODS, ends, strict=True))
    assert f"session (0 is the base); the last values: {last}." in page.words
    # Higher on paper is a smaller y: the last accuracies of the three methods, read off the markers.
    chart = page.markup[page.markup.index("curve-accuracy-desc") :].split("</svg>")[0]
    groups = re.findall(r"<g clip-path[^>]*>((?:\s*<use [^>]*/>)+)\s*</g>", chart)
    heights = [[float(y) for y in re.findall(r' y="([\d.]+)"', group)] for group in groups]
    markers = [ys[-1] for ys in heights if len(ys) == SESSIONS][-len(METHODS) :]  # after the caps of the error bars
    np.testing.assert_array_equal(np.argsort(markers), np.argsort(ends)[::-1])


def test_confusions_are_counted_over_seeds(page: Page) -> None:
    for method in METHODS:
        counts: dict[tuple[str, str], int] = {}
        for detail in made_up_details():
            if detail["method"] == method:
                for true, predicted, count in detail["confusion"]:
                    counts[true, predicted] = counts.get((true, predicted), 0) + count
        (true, predicted), most = max(counts.items(), key=lambda item: item[1])
        said = f"{true} taken for {predicted} {most} times"
        assert said.replace("\n", " ").replace("\x00", "\ufffd").replace("\ud800", "\ufffd") in page.words


def test_the_surest_mistakes_are_named(page: Page) -> None:
    rows = page.tables[f"Surest mistakes of {METHODS[0]}"]
    assert rows[0] == ["test row", "label", "answer", "probability", "seeds"]
    assert [row[0] for row in rows[1:3]] == ["row <1>", "row <2>"]  # those of all seeds, the surest first
    assert rows[1][3:] == ["0.890", f"{SEEDS} of {SEEDS}"]


# ------------------------------------------------------------------------------------------------- gaps and bad input


def changed(**changes: Any) -> Callable[[Row], str]:
    return lambda row: json.dumps({**row, **changes})


DAMAGE: list[tuple[Callable[[Row], str], str]] = [
    (lambda row: json.dumps(row)[:-20], "it is not JSON"),
    (lambda row: "[1, 2]", "it is not an object"),
    (lambda row: json.dumps({key: value for key, value in row.items() if key != "nll"}), "it has no 'nll'"),
    (changed(accuracy=None), "'accuracy' is None"),
    (changed(accuracy=True), "'accuracy' is True"),
    (changed(ece=math.nan), "'ece' is nan"),
    (changed(bytes=10**400), "'bytes' is 1000"),
    (changed(accuracy=-1), "'accuracy' is -1"),
    (changed(accuracy=1.01), "'accuracy' is 1.01"),
    (changed(nll=-0.5), "'nll' is -0.5"),
    (changed(forgetting=-1.5), "'forgetting' is -1.5"),
    (changed(open_auroc=math.inf), "'open_auroc' is inf"),
    (changed(classes=0), "'classes' is 0"),
    (changed(seconds_add=-1.0), "'seconds_add' is -1.0"),
    (changed(session_accuracy=[0.5, 0.5, 2.0, 0.5, 0.5]), "must have a number from 0 to 1 for each session so far"),
    (changed(seed="0"), "'seed' is '0'"),
    (changed(session=-1, session_accuracy=[]), "'session' is -1"),
    (changed(session_accuracy=[0.5]), "'session_accuracy' must have a number from 0 to 1 for each session so far"),
    (changed(session_accuracy=3), "'session_accuracy' must have a number from 0 to 1 for each session so far"),
    (changed(harmonic_mean="<b>"), "'harmonic_mean' is '<b>'"),
]


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(("damaged", "complaint"), DAMAGE)
def test_a_damaged_row_is_left_out_and_reported(tmp_path: Path, damaged: Callable[[Row], str], complaint: str) -> None:
    rows = made_up_rows()
    run = write_run(tmp_path, rows[:-1], extra=damaged(rows[-1]) + "\n")
    with pytest.warns(UserWarning, match="rows.jsonl, line 45, was left out"):
        page = Page(write_report(run).read_text(encoding="utf-8"))
    assert "rows.jsonl, line 45, was left out: " in page.words
    assert complaint in page.words
    # The last method lacks the last session of the last seed: two seeds in the summary, three in the other sessions.
    assert f"{METHODS[2]}, seed 2, has 4 of 5 sessions" in page.words
    *_, line = page.tables["Every method over all sessions"]
    assert line[1] == "2"
    sessions = page.tables[f"{METHODS[2]}, session by session"]
    for session, seeds in ((3, 3), (4, 2)):
        own = [r["accuracy"] for r in rows if (r["method"], r["session"]) == (METHODS[2], session)][:seeds]
        assert sessions[1 + session][2] == slow_estimate(own, 100, 1)


@pytest.mark.usefixtures("no_pictures")
def test_a_repeated_row_counts_once(tmp_path: Path) -> None:
    rows = made_up_rows(seeds=1)
    again = {**rows[0], "accuracy": 0.125}
    page = Page(write_report(write_run(tmp_path, [*rows, again])).read_text(encoding="utf-8"))
    assert "rows.jsonl, line 16, repeats forest, seed 0, session 0: the later row counts" in page.words
    assert page.tables["forest, session by session"][1][2] == "12.5"


@pytest.mark.usefixtures("no_pictures")
def test_many_complaints_are_cut_short(tmp_path: Path) -> None:
    run = write_run(tmp_path, made_up_rows(), extra="?\n" * 100)
    page = Page(write_report(run).read_text(encoding="utf-8"))
    assert "… and 80 more." in page.words


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"method": "nobody"}, "rows.jsonl has no row of nobody"),
        ({"session_of": [0]}, "differ in the number of classes"),
        ({"tree": {"order": [0]}}, "stored class tree"),
        ({"confusion": [["ant", "nobody", 1]]}, "a label that is not among 'labels'"),
        ({"reliability": [[0.5, 0.5]]}, "not enough values"),
        ({"labels": [["list"]] * len(LABELS)}, "'labels' must be text or numbers"),
        ({"session_of": [-1] * len(LABELS)}, "'session_of' must be the number of a session"),
        ({"reliability": [[1.5, 0.5, 3]]}, "a confidence or an accuracy that is not from 0 to 1"),
        ({"reliability": [[0.5, math.nan, 3]]}, "a confidence or an accuracy that is not from 0 to 1"),
        ({"reliability": [[0.5, 0.5, -3]]}, "must count rows"),
        ({"confusion": [[LABELS[0], LABELS[1], 0.5]]}, "must count rows"),
        ({"mistakes": [["a", "nobody", LABELS[0], 0.5]]}, "'mistakes' has a label that is not among 'labels'"),
        ({"mistakes": [[7, LABELS[1], LABELS[0], 0.5]]}, "'mistakes' must have ids and probabilities"),
        ({"mistakes": [["a", LABELS[1], LABELS[0], 1.5]]}, "'mistakes' must have ids and probabilities"),
    ],
)
def test_damaged_details_are_left_out_and_reported(tmp_path: Path, changes: Row, complaint: str) -> None:
    details = made_up_details()
    details[0] = {**details[0], **changes}
    with pytest.warns(UserWarning, match="details.jsonl, line 1, was left out"):
        page = Page(write_report(write_run(tmp_path, made_up_rows(), details)).read_text(encoding="utf-8"))
    assert "details.jsonl, line 1, was left out" in page.words
    assert complaint in page.words
    assert "forest, seed 1: 16 classes" in page.words  # the next seed's tree


def test_one_row_of_one_seed(tmp_path: Path) -> None:
    page = Page(write_report(write_run(tmp_path, made_up_rows()[:1])).read_text(encoding="utf-8"))
    assert "±" not in "".join(cell for rows in page.tables.values() for row in rows for cell in row)
    assert 'class="error"' not in page.markup
    assert not page.count("strong")  # the only method is not the best one
    assert "One seed, so there are no error bars." in page.words
    assert "no details of the last session" in page.words
    _, line = page.tables["Every method over all sessions"]
    assert line[2] == f"{100 * made_up_rows()[0]['accuracy']:.1f}"
    assert line[5] == "–"  # no harmonic mean without novel classes


@pytest.mark.usefixtures("no_pictures")
def test_a_method_without_a_complete_seed_has_no_summary(tmp_path: Path) -> None:
    rows = [row for row in made_up_rows(seeds=1) if (row["method"], row["session"]) != ("forest", 2)]
    page = Page(write_report(write_run(tmp_path, rows)).read_text(encoding="utf-8"))
    _, line, *_ = page.tables["Every method over all sessions"]
    assert line == ["forest", "0", *["–"] * 10]
    assert len(page.tables["forest, session by session"]) == 1 + 4


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not a folder: make a run with gptree fscil"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"has no rows\.jsonl"):
        write_report(tmp_path)
    write_run(tmp_path, [])
    with pytest.raises(ValueError, match=r"rows\.jsonl has no usable row: run gptree fscil again"):
        write_report(tmp_path)
    write_run(tmp_path, [], extra="?\n!\n")
    with pytest.raises(ValueError, match=r"no usable row \(2 damaged lines; the first: rows\.jsonl, line 1, was left"):
        write_report(tmp_path)
    write_run(tmp_path, [{**row, "data": f"data {row['seed']}"} for row in made_up_rows()])
    with pytest.raises(ValueError, match="one data set; the rows are about data 0, data 1, data 2"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


# ---------------------------------------------------------------------------------------------------- a real browser


def shown_in_browser(path: Path, chromium: Any) -> tuple[str, list[str]]:
    """The document as Chromium has built it, and what it has written to its console."""
    with chromium.new_context() as context:
        page, console = context.new_page(), []
        page.on("console", lambda said: console.append(said.text))
        page.goto(path.as_uri())
        return page.content(), console


def test_page_in_a_real_browser(page: Page, page_path: Path, tmp_path: Path, chromium: Any) -> None:
    document, console = shown_in_browser(page_path, chromium)
    assert console == []
    built = re.findall(r"<(figure|table|details|path|text|script)\b", document)
    counts = {tag: built.count(tag) for tag in ("figure", "table", "details", "path", "text", "script")}
    assert counts == {tag: page.count(tag) for tag in counts}
    # An empty console means something: the page's own policy stops a script, and Chromium says so.
    (tmp_path / "bad.html").write_text(page.markup.replace("</body>", "<script>1</script></body>"), encoding="utf-8")
    _, console = shown_in_browser(tmp_path / "bad.html", chromium)
    assert any("Content Security Policy" in line for line in console)
