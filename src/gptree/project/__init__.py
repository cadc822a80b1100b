"""Projects: a folder of plain files that a person teaches a model in.

Examples by id (pictures, texts or bare vectors), the encoder, their vectors, the model, and everything that happened.
The commands and the studio use it; nothing here knows of either.

    Project.create(folder, data, encoder=…, labels=…, test=…, hold_out=…)    Project.open(folder)
    project.version, .name, .kind, .encoder, .model, .examples (by id), .events
    project.import_rows(data, split="pool")         a folder, a table, a file of vectors, an array, texts → Imported
    project.import_pictures([(name, bytes), …])     pictures that somebody hands over, kept in inbox/ → Imported
    project.snapshot()                              an immutable Snapshot: version, classes, tree, answers, quality
    project.first_look()                            the same before it is known what is none of these
    project.preview([Lesson(label, ids), …])        what it would change; nothing is saved → Changes
    project.teach(lessons, note, author)            new classes, and more of known ones → Changes
    project.rename(old, new)   .merge(labels, into)   .remove(labels)   .undo()   .undo_to(version)      → Changes
    project.forget(ids)                             they leave all files and every version for good → Changes
    project.diff(version_a, version_b)              "33 of 300 answers changed; …" and the list was → now
    project.queue(order, n)                         "suggest", "strangest", "least-sure" or "newest" → ids
    project.quality()                               on test rows, or left-out estimates, which its note says
    project.check()                                 labels that are probably wrong, duplicates, outliers → Findings
    project.path_of(id), .sources(), .vectors(ids)  pictures, texts and vectors of examples
    project.refresh()                               reads what another process changed

Every change takes ``version=``, the version that it was decided at; a stale one raises `StaleVersion` with the
difference. Changes go one after the other, in threads and in processes (`gptree.storage.locked`); a snapshot is never
changed, and a kill leaves the project as it was before a change or after it. `gptree.project.folder` has the layout.
"""

from gptree.project.answers import NONE_OF_THESE, Answer, Answers, Change, Changes
from gptree.project.base import StaleVersion
from gptree.project.checks import Findings, Outlier, Suspect, Twins
from gptree.project.examples import Example, Split
from gptree.project.folder import Event, is_project
from gptree.project.intake import Imported
from gptree.project.lessons import Lesson
from gptree.project.project import Project
from gptree.project.quality import ClassQuality, Quality
from gptree.project.reading import Order
from gptree.project.state import Snapshot

__all__ = [
    "NONE_OF_THESE",
    "Answer",
    "Answers",
    "Change",
    "Changes",
    "ClassQuality",
    "Event",
    "Example",
    "Findings",
    "Imported",
    "Lesson",
    "Order",
    "Outlier",
    "Project",
    "Quality",
    "Snapshot",
    "Split",
    "StaleVersion",
    "Suspect",
    "Twins",
    "is_project",
]
