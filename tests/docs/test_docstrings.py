"""Docstrings: every public name has one in numpydoc form, and the examples in them run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import gptree

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(gptree.__path__, "gptree.") if not module.name.endswith("__main__")
)
PACKAGES = ["gptree", *(f"gptree.{m.name}" for m in pkgutil.iter_modules(gptree.__path__) if m.name != "cli")]
PUBLIC = sorted(
    {
        f"{value.__module__}.{value.__qualname__}"
        for package in PACKAGES
        for name in getattr(importlib.import_module(package), "__all__", ())
        for value in [getattr(importlib.import_module(package), name)]
        if inspect.isclass(value) or inspect.isfunction(value)
    }
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failures == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert inspect.getdoc(getattr(importlib.import_module(module), attribute)), name


@pytest.mark.parametrize("name", ["GPTreeClassifier", "GPForestClassifier", "DeepGPTreeClassifier"])
def test_help_lists_every_parameter(name: str) -> None:
    family = getattr(gptree, name)
    text = inspect.getdoc(family) or ""
    sections = text.split("Parameters\n----------\n")[1].split("Attributes\n----------\n")[0]
    for parameter in inspect.signature(family).parameters:
        assert f"\n{parameter} : " in "\n" + sections, parameter
