"""`gptree export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gptree import DeepGPTreeClassifier
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, say
from gptree.cli.models import open_model
from gptree.estimators.onnx_export import export_onnx
from gptree.maths.frozen import NotFrozenError


@clear_errors
def export(
    model: options.Model,
    out: Annotated[Path, typer.Argument(help="The .onnx file to write.", show_default=False)],
    as_json: options.Json = False,
) -> None:
    """Write a model as an ONNX file, for programs without gptree.

    The file takes features `X` (n, d) in single precision and gives `probabilities` (n, C); labels stand in its
    metadata, as a JSON list under `classes`. Before it is written its answers are compared with the model's, on
    examples that the model keeps and on random rows. What the model learns later is not in it.
    """
    if out.suffix.lower() != ".onnx":
        raise ValueError(f"{out}: models are exported as .onnx; name such a file.")
    check_parent(out)
    classifier: Any = open_model(model)
    if isinstance(classifier, DeepGPTreeClassifier):
        raise ValueError("a model with a network of its own cannot be exported; one that was fitted to embeddings can.")
    try:
        difference = export_onnx(classifier, out)
    except (NotFrozenError, ImportError) as error:
        raise ValueError(str(error)) from error
    count, size = len(classifier.classes_), out.stat().st_size
    if as_json:
        print_json({"file": str(out), "bytes": size, "classes": count, "difference": difference})
    else:
        say(
            f"{count:,} classes, {size / 1e6:.1f} MB written to {out}; probabilities differ by at most {difference:.1g}"
        )
