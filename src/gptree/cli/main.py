"""The `gptree` command: its sub-commands, and an example of each. The module of one is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gptree import __version__

#: Each sub-command: its module, the first line of its docstring, an example.
COMMANDS = {
    "demo": (
        "demo",
        "Teach handwritten digits one by one, take a wrong lesson back, and draw what was learnt.",
        "gptree demo --out demo",
    ),
    "fit": (
        "fitting",
        "Fit a model to features and labels, and save it.",
        "gptree fit train.csv --out model --test test.csv",
    ),
    "predict": (
        "predicting",
        "Predict the labels of DATA, each with its probability.",
        "gptree predict model new.csv --out predictions.csv",
    ),
    "score": (
        "judging",
        "Measure a model on labelled DATA: accuracy, NLL, calibration, reliability and confusions.",
        "gptree score model test --page score.html",
    ),
    "check": (
        "judging",
        "Look for trouble in data: labels that are probably wrong, duplicates, outliers, files that cannot be read.",
        "gptree check photos --page check.html",
    ),
    "export": (
        "exporting",
        "Write a model as an ONNX file, for programs without gptree.",
        "gptree export model model.onnx",
    ),
    "tree": (
        "looking",
        "Show the class tree of a model; of a forest, the first tree.",
        "gptree tree model --picture tree.png",
    ),
    "explain": (
        "looking",
        "Explain predictions: the decisions on the path of the predicted class, and its nearest training examples.",
        "gptree explain model new.csv --rows 0-4,17",
    ),
    "add": (
        "growing",
        "Teach a model new classes from a few examples each; with --examples, more of the classes it knows.",
        "gptree add model new_classes.csv",
    ),
    "preview": (
        "comparing",
        "Say what a lesson would change, without teaching it. Nothing is saved.",
        "gptree preview model new --on inbox",
    ),
    "diff": (
        "comparing",
        "Say which answers differ between two models, or between two versions of one.",
        "gptree diff model inbox --back 1",
    ),
    "remove": ("growing", "Make a model forget classes.", "gptree remove model cow eel"),
    "rename": ("growing", "Give a class another label.", "gptree rename model cow ox"),
    "merge": (
        "growing",
        "Make one class of several. At most one of them may be a class that the model was fitted with.",
        "gptree merge model ox bull --into cattle",
    ),
    "undo": (
        "growing",
        "Take back the last change. The model is then what it was before, to the last bit.",
        "gptree undo model",
    ),
    "forget": (
        "forgetting",
        "Make a model forget examples for good, as if it had never been shown them. No undo brings them back.",
        "gptree forget model cup/017.jpg",
    ),
    "history": (
        "growing",
        "Show what happened to a model: when, which labels, from how many examples. Times are UTC.",
        "gptree history model",
    ),
    "suggest": (
        "labelling",
        "Name the rows of DATA that are worth a label, the most useful first.",
        "gptree suggest model inbox -n 20 --copy to_label",
    ),
    "studio": (
        "studio",
        "Teach a model on a page in the browser: show examples, see what changes, take it back.",
        "gptree studio photos",
    ),
    "embed": (
        "embedding",
        "Encode a folder of pictures or a table of texts.",
        "gptree embed photos --out photos.npz",
    ),
    "encoders": (
        "embedding",
        "List the encoders that need no file: what they take, whether they are installed, how long their vectors are.",
        "gptree encoders --json",
    ),
    "cache": ("embedding", "Show, clear or merge stores of what was encoded.", "gptree cache info"),
    "serve": (
        "serving",
        "Answer over HTTP: predictions, explanations, metrics; a new model is taken in without a gap.",
        "gptree serve model --port 8000",
    ),
    "card": (
        "card",
        "Describe a model: classes, examples, sessions, encoder, calibration, limits and history.",
        "gptree card model --test test.csv --out card.html",
    ),
    "fscil": (
        "sessions",
        "Teach a model its classes session by session, and measure it after every session.",
        "gptree fscil data.npz --base 60 --way 5 --shot 5 --out run",
    ),
    "report": (
        "sessions",
        "Write one HTML page about a run: summary, session curves, forgetting, reliability, confusion, class trees.",
        "gptree report run --out report.html",
    ),
}


class _Late(TyperGroup):
    """Lists the sub-commands without importing them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)  # one that does not exist is reported here
        return name, None if name is None else _command(name), rest


def _command(name: str) -> Any:
    """A sub-command with its arguments and options."""
    module, _, example = COMMANDS[name]
    alone = typer.Typer(add_completion=False)
    function = getattr(import_module(f"gptree.cli.{module}"), name)
    alone.command(name, epilog=f"Example: {example}")(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=_Late,
    help="Gaussian-process trees for classification with many classes.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gptree {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _name, (_, _line, _) in COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)
