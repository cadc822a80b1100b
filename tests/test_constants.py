"""Every constant and default of the numerical packages, compared with a table: a change of one changes numbers.

`python tests/test_constants.py` writes the table anew, where a change is wanted.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TABLE = Path(__file__).with_name("constants.json")
PACKAGES = ("maths", "inference", "experts", "tree", "model", "incremental")
#: Whose numbers are for the eye.
DRAWN = ("gptree.tree.plot",)


def modules(package: str) -> Iterator[ModuleType]:
    whole = importlib.import_module(f"gptree.{package}")
    yield whole
    for found in pkgutil.walk_packages(whole.__path__, f"{whole.__name__}."):
        yield importlib.import_module(found.name)


def written(value: Any) -> str | None:
    """A number, settings, or several of them as the table holds them; None for anything else."""
    if isinstance(value, dict):
        value = {str(key): item for key, item in value.items()}
    several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list | range) else None
    if several is not None:
        return repr(value) if several and all(written(each) is not None for each in several) else None
    numbers = isinstance(value, bool | int | float) or (is_dataclass(value) and not isinstance(value, type))
    return repr(value) if numbers else None


def defaults(name: str, function: Any) -> Iterator[tuple[str, Any]]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            yield f"{name}({parameter.name})", parameter.default


def constants(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Constants of a module, attributes of its classes, and defaults of its functions."""
    for name, value in vars(module).items():
        if name.startswith("__") or name == "TYPE_CHECKING":
            continue
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield from defaults(name, value)
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for attribute, held in vars(value).items():
                function = inspect.unwrap(getattr(held, "__func__", held))
                if inspect.isfunction(function):
                    if attribute == "__init__" or not attribute.startswith("__"):
                        yield from defaults(f"{name}.{attribute}", function)
                elif not attribute.startswith(("__", "_is_")) and attribute not in getattr(
                    value, "__dataclass_fields__", ()
                ):
                    yield f"{name}.{attribute}", held
        else:
            yield name, value


def table(package: str) -> dict[str, str]:
    found = {}
    for module in modules(package):
        for name, value in constants(module):
            if module.__name__ not in DRAWN and (text := written(value)) is not None:
                found[f"{module.__name__.removeprefix('gptree.')}: {name}"] = text
    return dict(sorted(found.items()))


@pytest.mark.parametrize("package", PACKAGES)
def test_constants_and_defaults_are_those_of_the_table(package: str) -> None:
    assert table(package) == json.loads(TABLE.read_text())[package]


if __name__ == "__main__":
    everything = {package: table(package) for package in PACKAGES}
    TABLE.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
