"""The `gptree` command: its sub-commands, and an example of each."""

from __future__ import annotations

from typing import Annotated

import typer

from gptree import __version__
from gptree.cli.demo import demo
from gptree.cli.fitting import fit
from gptree.cli.growing import add, history, merge, remove, rename, undo
from gptree.cli.looking import explain, tree
from gptree.cli.predicting import predict
from gptree.cli.sessions import fscil, report

app = typer.Typer(
    help="Gaussian-process trees for classification with many classes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gptree {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


for _command, _example in (
    (demo, "gptree demo --out demo"),
    (fit, "gptree fit train.csv --out model --test test.csv"),
    (predict, "gptree predict model new.csv --out predictions.csv"),
    (tree, "gptree tree model --picture tree.png"),
    (explain, "gptree explain model new.csv --rows 0-4,17"),
    (add, "gptree add model new_classes.csv"),
    (remove, "gptree remove model cow eel"),
    (rename, "gptree rename model cow ox"),
    (merge, "gptree merge model ox bull --into cattle"),
    (undo, "gptree undo model"),
    (history, "gptree history model"),
    (fscil, "gptree fscil data.npz --base 60 --way 5 --shot 5 --out run"),
    (report, "gptree report run --out report.html"),
):
    app.command(epilog=f"Example: {_example}")(_command)
