"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import gptree

MODULES = [module.name for module in pkgutil.walk_packages(gptree.__path__, "gptree.") if ".cli" not in module.name]


@pytest.mark.parametrize("package", sorted({name.split(".")[1] for name in MODULES}))
def test_examples_in_docstrings(package: str) -> None:
    modules = [name for name in MODULES if name.split(".")[1] == package]
    for name in modules:
        assert doctest.testmod(importlib.import_module(name)).failed == 0, name
