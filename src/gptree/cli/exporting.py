"""`gptree export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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
    metadata, as a JSON list under `classes`. A network goes along: then `X` is what it takes, and pictures (n, C, H, W)
    in uint8 are normalised in the file, as `input` in the metadata says. Before it is written its answers are compared
    with the model's, on examples that the model keeps and on random rows; where single precision does not hold the
    model it computes in double. What the model learns later is not in it.
    """
    if out.suffix.lower() != ".onnx":
        raise ValueError(f"{out}: models are exported as .onnx; name such a file.")
    check_parent(out)
    classifier: Any = open_model(model)
    try:
        found = export_onnx(classifier, out)
    except (NotFrozenError, ImportError) as error:
        raise ValueError(str(error)) from error
    count, size = len(classifier.classes_), out.stat().st_size
    if as_json:
        print_json({"file": str(out), "bytes": size, "classes": count, **found._asdict()})
    else:
        say(
            f"{count:,} classes, {size / 1e6:.1f} MB in {found.precision} precision written to {out}; probabilities "
            f"differ by at most {found.difference:.1g}"
        )
