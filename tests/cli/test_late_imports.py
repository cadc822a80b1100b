"""What is imported when: neither `import gptree` nor the help of the command loads the libraries that fitting needs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gptree
from gptree.cli.main import COMMANDS

COMMAND = "import sys; sys.argv = ['gptree', '{}']; from gptree.cli.main import app; app(standalone_mode=False)"


@pytest.mark.parametrize(
    ("code", "most"), [("import gptree", 120), (COMMAND.format("--help"), 500), (COMMAND.format("--version"), 500)]
)
def test_nothing_heavy_is_imported(code: str, most: int) -> None:
    """Modules are counted, not seconds: python has some forty itself, torch a thousand."""
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "gptree" in loaded
    assert len(loaded) < most
    assert not loaded & {"torch", "gpytorch", "sklearn", "scipy", "numpy", "pandas", "matplotlib"}


def test_a_default_model_is_fitted_saved_and_read_without_sympy(tmp_path: Path) -> None:
    """It takes more than a second, and torch imports it where shapes are broadcast."""
    code = f"""
import sys
from gptree import GPTreeClassifier, load_model
X, y = [[0.0, 1], [0.1, 1], [1.0, 0], [1.0, 0.1]], list("aabb")
GPTreeClassifier(device="cpu").fit(X, y).save({str(tmp_path / "model")!r})
load_model({str(tmp_path / "model")!r}).predict_proba(X)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"torch", "gpytorch"} <= loaded
    assert "sympy" not in loaded


def test_every_public_name_is_found_and_is_the_one_that_type_checkers_see() -> None:
    tree = ast.parse(Path(gptree.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert sorted([*seen, "__version__"]) == gptree.__all__
    for name, module in seen.items():
        assert getattr(gptree, name) is getattr(import_module(str(module)), name)
        assert name in dir(gptree)
    with pytest.raises(AttributeError, match="no attribute 'GPTree'"):
        _ = gptree.GPTree  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_begins_its_own_help(name: str) -> None:
    module, line, example = COMMANDS[name]
    text = inspect.getdoc(getattr(import_module(f"gptree.cli.{module}"), name))
    assert text is not None
    assert text.split("\n")[0] == line
    assert example.startswith(f"gptree {name} ")
