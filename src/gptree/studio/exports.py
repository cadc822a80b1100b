"""What can be taken away: the model, as it is or for other programs, or the answers, as a zip file."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gptree.studio.views import View

if TYPE_CHECKING:
    from gptree.project import Project


def zipped(what: str, view: View, project: Project) -> bytes:
    """A zip file with the folder of the model, the model as ONNX, or a table of all answers."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        if what == "answers":
            archive.writestr("answers.csv", _table(view))
        elif view.model is None:
            raise ValueError("There is no model yet: teach it something.")
        else:
            with TemporaryDirectory() as folder:
                if what == "onnx":
                    _export(view.model, Path(folder) / "model.onnx")
                else:
                    view.model.save(Path(folder) / "model")
                for path in sorted(Path(folder).rglob("*")):
                    if path.is_file():
                        archive.write(path, path.relative_to(folder).as_posix())
    return file.getvalue()


def _export(model: Any, path: Path) -> None:
    from gptree.estimators.onnx_export import export_onnx
    from gptree.maths.frozen import NotFrozenError

    try:
        export_onnx(model, path)
    except (NotFrozenError, ImportError) as error:
        raise ValueError(str(error)) from error


def _table(view: View) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["id", "answer", "probability", "novelty", "split", "label", "none of these"])
    for row in range(len(view.examples)):
        each: dict[str, Any] = view.example(row)
        cells = [each[name] for name in ("id", "answer", "p", "novelty", "split", "given")]
        writer.writerow([*cells, "yes" if each["none"] else ""])
    return text.getvalue()
