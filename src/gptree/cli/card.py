"""`gptree card`: what a model is, how good it is and what it is not for, on one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gptree import DeepGPTreeClassifier
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, say
from gptree.cli.growing import WORDS, described, when
from gptree.cli.models import Classifier, ability, class_numbers, open_model, read_for
from gptree.embed.encoders import describes
from gptree.incremental import Entry
from gptree.project.quality import Quality, left_out_quality, measured
from gptree.protocols.markup import element, escaped, one_line, page
from gptree.storage import write_atomically
from gptree.tree import ClassTree

_FORMATS = (".md", ".html")
_CLASSES = 200  # that are listed one by one


@dataclass(frozen=True)
class Section:
    """A part of a card: sentences, then facts, each with its name."""

    title: str
    sentences: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@clear_errors
def card(
    model: options.Model,
    test: Annotated[
        Path | None, typer.Option(help="Labelled DATA to measure the model on.", metavar="DATA", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this .md or .html file.", metavar="FILE")
    ] = None,
    features: options.Features = None,
    labels: options.Labels = None,
    weights: options.Weights = None,
) -> None:
    """Describe a model: classes, examples, sessions, encoder, calibration, limits and history.

    Prints Markdown, or writes Markdown or one HTML page. Without --test, accuracy and calibration are estimated on the
    examples that the model keeps, each left out.
    """
    if out is not None:
        if out.suffix.lower() not in _FORMATS:
            raise ValueError(f"{out}: a card is a .md or .html file; name such a file with --out.")
        check_parent(out)
    classifier = open_model(model)
    quality = _quality(classifier, test, features, labels, weights)
    title, sections = f"Model card: {model.resolve().name}", _sections(classifier, quality)
    text = _html(title, sections) if out is not None and out.suffix.lower() == ".html" else _markdown(title, sections)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_atomically(out, text)
    say(f"written to {out}")


def _quality(
    classifier: Classifier, test: Path | None, features: str | None, labels: str | None, weights: Path | None
) -> Quality | None:
    if test is not None:
        rows = read_for(classifier, test, features, labels, weights=weights, need_labels=True)
        y = class_numbers(rows, classifier.classes_)
        note = f"on {len(y):,} rows of {test.name}"
        return measured(classifier.predict_proba(rows.X), y, classifier.classes_.tolist(), "test", note)
    return left_out_quality(classifier) if hasattr(classifier, "left_out") else None


# --------------------------------------------------------------------------------------------------------- sections


def _sections(classifier: Classifier, quality: Quality | None) -> list[Section]:
    journal: Sequence[Entry] = getattr(classifier, "journal_", ())
    parts = [_facts(classifier, journal), _how_good(quality), _limits()]
    return [*parts, *([_history(journal)] if journal else []), _classes(classifier)]


def _facts(classifier: Classifier, journal: Sequence[Entry]) -> Section:
    encoder = getattr(classifier, "encoder_", None)
    width = getattr(classifier, "n_features_in_", None)
    facts = {
        "kind": type(classifier).__name__,
        "classes": f"{len(classifier.classes_):,}",
        "trees": str(len(_trees(classifier))),
        "input": "what the network takes" if width is None else f"{width:,} numbers a row",
        "encoder": "not recorded: the model was fitted on vectors" if encoder is None else describes(encoder),
    }
    if journal:
        memory = ability(classifier, "memory_")
        facts |= {
            "fitted on": f"{sum(journal[0].counts):,} examples of {len(journal[0].labels):,} classes",
            "sessions since": str(len(ability(classifier, "sessions_")) - 1),
            "changes since": str(len(journal) - 1),
            "examples kept": f"{len(memory):,} ({memory.nbytes / 1e3:,.0f} kB with all that was learnt)",
            "fitted": when(journal[0]),
            "last change": when(journal[-1]),
        }
    return Section("What it is", facts=tuple(facts.items()))


def _trees(classifier: Classifier) -> Sequence[ClassTree]:
    return (classifier.tree_,) if isinstance(classifier, DeepGPTreeClassifier) else classifier.model_.trees


def _how_good(quality: Quality | None) -> Section:
    if quality is None or not quality.rows:
        return Section("How good it is", ("Not measured: name labelled data with --test.",))
    facts = (
        ("accuracy", f"{100 * quality.accuracy:.1f} %"),
        ("negative log-likelihood", f"{quality.nll:.3f}"),
        ("expected calibration error", f"{100 * quality.ece:.1f} %"),
    )
    worst = [f"{c.true} taken for {c.predicted} ({c.count}×)" for c in quality.confusions[:5]]
    sentences = (f"Measured {quality.note}." if quality.source == "test" else f"{quality.note.capitalize()}.",)
    if worst:
        sentences += (f"Most frequent mistakes: {'; '.join(worst)}.",)
    return Section("How good it is", sentences, facts)


def _limits() -> Section:
    return Section(
        "What to keep in mind",
        (
            "It answers with one of its classes. A row of none of them gets a class too, unless it is asked with "
            "gptree predict --open.",
            "Probabilities hold for rows like those it was taught. Other cameras, writers or times need new examples "
            "and a new measurement.",
            "It keeps vectors of the examples it was taught. They tell something of the originals: treat the model as "
            "you treat the data.",
        ),
    )


def _history(journal: Sequence[Entry]) -> Section:
    def sentence(entry: Entry) -> str:
        who = f", by {entry.author}" if entry.author else ""
        return f"{WORDS[entry.kind]} {described(entry)}{who}" + (f": {entry.note}" if entry.note else "")

    return Section("History", ("Times are UTC.",), tuple((when(entry), sentence(entry)) for entry in journal))


def _classes(classifier: Classifier) -> Section:
    labels = [str(label) for label in classifier.classes_.tolist()]
    if len(labels) > _CLASSES:
        return Section("Classes", (f"{len(labels):,}, the first {_CLASSES}: {', '.join(labels[:_CLASSES])}.",))
    sessions = getattr(classifier, "sessions_", [classifier.classes_])
    kept = classifier.memory_.counts if hasattr(classifier, "memory_") else {}
    names = ["of the first fit", *(f"of session {number}" for number in range(1, len(sessions)))]
    groups = (
        ", ".join(f"{label} ({kept[label]})" if label in kept else str(label) for label in session.tolist())
        for session in sessions
    )
    sentences = ("Behind each, how many of its examples are kept.",) if kept else ()
    facts = tuple((name, group) for name, group in zip(names, groups, strict=True) if group)
    return Section("Classes", sentences, facts)


# ---------------------------------------------------------------------------------------------------------- writing


def _markdown(title: str, sections: Iterable[Section]) -> str:
    blocks = [f"# {_plain(title)}"]
    for section in sections:
        blocks += [f"## {section.title}", *map(_plain, section.sentences)]
        if section.facts:
            blocks.append("\n".join(f"- {_plain(name)}: {_plain(fact)}" for name, fact in section.facts))
    return "\n\n".join(blocks) + "\n"


def _plain(text: str) -> str:
    """Text in which Markdown sees no markup."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>#|" else c for c in one_line(text))


def _html(title: str, sections: Iterable[Section]) -> str:
    parts = []
    for section in sections:
        content = [element("p", escaped(sentence)) for sentence in section.sentences]
        pairs = (element("dt", escaped(name)) + element("dd", escaped(fact)) for name, fact in section.facts)
        content += [element("dl", *pairs)] if section.facts else []
        parts.append(element("section", element("h2", escaped(section.title)), *content))
    return page(title, *parts)
