"""Changes of files by what they mean: values of documents, arrays, tables, and bytes of anything.

Checksums are computed anew, as anybody can, except after changes of bytes.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus import Case
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

Random = np.random.Generator


def mutated(case: Case, random: Random) -> tuple[dict[str, bytes], str, bool]:
    """The files of a case with changes, the changes in words, and whether parameters are among them."""
    files, words, settings = dict(case.files), [], False
    for _ in range(1 + (random.random() < 0.25)):
        name = case.names[int(random.integers(len(case.names)))]
        if random.random() < 0.12:
            files[name], word = raw_change(files.get(name, b""), random)
        elif Path(name).name == "model.json" or name.endswith(".safetensors"):
            name = str(Path(name).with_name("model.json"))
            word = _change_folder(case, files, name, random)
            settings = settings or '"parameters"' in word
        else:
            try:
                files[name], word = _CHANGES[Path(name).suffix](files[name], random)
            except Exception:  # it has been changed before, and cannot be taken apart any more
                files[name], word = raw_change(files[name], random)
        words.append(f"{name}: {word}")
    return files, "; ".join(words)[:200], settings


def raw_change(content: bytes, random: Random) -> tuple[bytes, str]:
    """Bytes flipped, removed, repeated or inserted."""
    start, length = int(random.integers(len(content) + 1)), int(random.integers(1, 64))
    noise = random.integers(0, 256, length, dtype=np.uint8).tobytes()
    match int(random.integers(5)):
        case 0:
            return content[:start], f"cut at {start}"
        case 1:
            return content[:start] + content[start + length :], f"{length} bytes removed at {start}"
        case 2:
            return content[:start] + noise + content[start:], f"{length} bytes inserted at {start}"
        case 3:
            return content[:start] + content[start : start + length] * 2 + content[start + length :], "bytes repeated"
    return content[:start] + noise + content[start + length :], f"{length} bytes replaced at {start}"


def _change_folder(case: Case, files: dict[str, bytes], name: str, random: Random) -> str:
    """Change document or arrays of a folder, with checksums that fit."""
    if name not in case.parsed:
        document = json.loads(case.files[name])
        case.parsed[name] = document, load_tensors(case.files[str(Path(name).with_name(document["arrays"]))])
    document, tensors = case.parsed[name]
    document = copy.deepcopy(document)
    if random.random() < 0.6:
        word = change_value(document, random)
    else:
        tensors, word = change_arrays(tensors, random)
        if not isinstance(tensors, dict):
            return word
        content = save_tensors(tensors)
        files.pop(str(Path(name).with_name(document["arrays"])), None)
        document["sha256"] = hashlib.sha256(content).hexdigest()
        document["arrays"] = f"arrays-{document['sha256'][:16]}.safetensors"
        files[str(Path(name).with_name(document["arrays"]))] = content
    document.pop("checksum", None)
    document["checksum"] = hashlib.sha256(_dumped(document, sort_keys=True).encode()).hexdigest()
    files[name] = _dumped(document).encode()
    return word


def _dumped(value: Any, **options: Any) -> str:
    """JSON of values nested as deeply as `DEEP`, which the encoder would not enter."""
    return json.dumps(value, **options).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


# ------------------------------------------------------------------------------------------------- values of documents

DEEP = "nested deeply"
#: Values that replace others.
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 255, 2**31, 2**53, 10**10, 2**63, 10**30, -(2**63), 10**400),
    *(0.0, -0.0, 0.5, 1e-300, 1e300, -1e300, 1e-9, float("nan"), float("inf"), float("-inf")),
    *("", "x", "nan", "\0", "\x1b[31m", "../elsewhere", "/etc/passwd", "meta", "cuda", "float16", "<U200000000"),
    *("dense", "sparse", "linear", "RBFKernel", "ScaleKernel", "FittedLDA", "object", "é" * 300, DEEP),
    *([], {}, [[]], [{}], [1, 2], ["a", "a"], {"@": "Gibbs"}, {"@": "kernel"}, {"kind": "FittedSingle"}, {"x": 1}),
    *([20000, 20000], {"name": "ScaleKernel", "arguments": {}, "children": []}),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all values in a document; of long lists to some."""
    out = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(children)[:40]:
        out += _places(item, (*path, key))
    return out


def _at(document: Any, path: Sequence[Any]) -> Any:
    for key in path:
        document = document[key]
    return document


def change_value(document: Any, random: Random) -> str:
    """Change one value of a document, in place; the parts of a document are equally likely."""
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = keys[int(random.integers(len(keys)))]
    places = [(key, *path) for path in _places(document[key])] + [(key,)]
    path = places[int(random.integers(len(places)))]
    parent, last = _at(document, path[:-1]), path[-1]
    value, kind = parent[last], int(random.integers(7))
    if kind == 0:
        del parent[last]
        return f"{json.dumps(path)[:80]} deleted"
    if kind == 1:
        other = places[int(random.integers(len(places)))]
        parent[last] = copy.deepcopy(_at(document, other)) if path[: len(other)] != other else None
    elif kind == 2 and isinstance(parent, list):
        parent.insert(last, copy.deepcopy(value))
    elif kind == 3 and isinstance(value, int | float):
        factors = (-1, 0, 0.5, 2, 10, 1000, 1e6, 1e12)
        parent[last] = type(value)(value * factors[int(random.integers(len(factors)))])
    elif kind == 4 and isinstance(value, int | float):
        parent[last] = value + int(random.integers(-3, 4))
    elif kind == 5 and isinstance(value, dict) and "children" in value:
        for _ in range(int(random.integers(1, 30))):
            value = {"name": "ScaleKernel", "arguments": {}, "children": [value]}
        parent[last] = value
    else:
        parent[last] = copy.deepcopy(STRANGE[int(random.integers(len(STRANGE)))])
    return f"{json.dumps(path)[:80]} = {parent[last]!r:.60}"


# ------------------------------------------------------------------------------------------------------------- arrays

_DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def change_arrays(tensors: dict[str, torch.Tensor], random: Random) -> tuple[dict[str, torch.Tensor], str]:
    """Change one of several arrays: a value, its shape, its type, or whether it is there."""
    tensors = dict(tensors)
    names = sorted(tensors)
    name = names[int(random.integers(len(names)))]
    value, kind = tensors[name], int(random.integers(9))
    if kind == 0:
        del tensors[name]
        return tensors, f"{name} deleted"
    if kind == 1:
        other = names[int(random.integers(len(names)))]
        tensors[name], tensors[other] = tensors[other].clone(), value.clone()
        return tensors, f"{name} and {other} exchanged"
    if kind == 2:
        dtype = _DTYPES[int(random.integers(len(_DTYPES)))]
        tensors[name] = value.to(dtype)
        return tensors, f"{name} as {dtype}"
    if kind == 3:
        shape = ((), (0,), (1,), (-1,), (1, *value.shape), (*value.shape, 1), tuple(reversed(value.shape)))
        chosen = shape[int(random.integers(len(shape)))]
        tensors[name] = value.reshape(chosen) if _fits(value, chosen) else value.new_zeros([max(n, 0) for n in chosen])
        return tensors, f"{name} in the shape {tuple(tensors[name].shape)}"
    if kind == 4 and value.dim() > 0 and len(value) > 0:
        tensors[name] = value[1:].clone() if random.random() < 0.5 else torch.cat([value, value[:1]])
        return tensors, f"{name} with {len(tensors[name])} rows"
    return tensors | {name: _changed_entries(value, random)}, f"{name} has other entries"


def _fits(value: torch.Tensor, shape: Sequence[int]) -> bool:
    return -1 in shape or int(np.prod(shape)) == value.numel()


def _changed_entries(value: torch.Tensor, random: Random) -> torch.Tensor:
    flat = value.clone().reshape(-1)
    if len(flat) == 0:
        return value
    many = 1 if random.random() < 0.7 else int(random.integers(1, len(flat) + 1))
    places = torch.as_tensor(random.integers(0, len(flat), many))
    if value.dtype == torch.bool:
        flat[places] = ~flat[places]
    elif value.is_floating_point():
        numbers = (float("nan"), float("inf"), -1e300, 1e300, 1e30, -1.0, 0.0, 1e-300, 2.0, 1e6, -50.0)
        chosen = numbers[int(random.integers(len(numbers)))]
        flat[places] = -flat[places] if random.random() < 0.2 else torch.tensor(chosen, dtype=torch.float64).to(flat)
    else:
        numbers = (-1, -2, 0, 1, 2, 5, 100, 2**31, 2**62, -(2**62))
        flat[places] = torch.tensor(numbers[int(random.integers(len(numbers)))]).to(flat)
    return flat.reshape(value.shape)


# ------------------------------------------------------------------------------------------------------------- tables


def _change_lines(content: bytes, random: Random) -> tuple[bytes, str]:
    """JSON documents, one a line."""
    lines = content.decode().splitlines()
    at = int(random.integers(len(lines)))
    if random.random() < 0.2:
        lines.insert(at, lines[int(random.integers(len(lines)))])
        return "\n".join([*lines, ""]).encode(), f"line {at} repeated"
    document = json.loads(lines[at])
    word = change_value(document, random)
    lines[at] = _dumped(document)
    return "\n".join([*lines, ""]).encode(), f"line {at}, {word}"


def _change_csv(content: bytes, random: Random) -> tuple[bytes, str]:
    lines = [line.split(",") for line in content.decode().splitlines()]
    row = int(random.integers(len(lines)))
    column = int(random.integers(len(lines[row])))
    cells = ("", "nan", "inf", "1e999", "-1e308", "x", '"', '"a,b"', "\0", "é", "9" * 5000, "0x10", " 1 ", "=1+1")
    match int(random.integers(4)):
        case 0:
            del lines[row][column]
        case 1:
            lines[row].insert(column, lines[row][column])
        case 2:
            lines.insert(row, [])
        case _:
            lines[row][column] = cells[int(random.integers(len(cells)))]
    return "\n".join(",".join(line) for line in lines).encode(), f"line {row}, cell {column}"


def _changed_array(value: np.ndarray, random: Random) -> np.ndarray:
    kind = int(random.integers(6))
    if kind == 0:
        return value.reshape(-1)
    if kind == 1:
        return value[: int(random.integers(len(value) + 1))]
    if kind == 2:
        return value.astype(("U9", "S9", "c16", "f2")[int(random.integers(4))] if value.dtype.kind != "U" else "S20")
    if kind == 3:
        return value[..., None]
    out = value.copy()
    numbers = (np.nan, np.inf, -np.inf, 1e300, -1.0, 0.0)
    out.flat[int(random.integers(out.size))] = (
        numbers[int(random.integers(len(numbers)))] if value.dtype.kind == "f" else ("", "\0", "x")[kind % 3]
    )
    return out


def _change_npy(content: bytes, random: Random) -> tuple[bytes, str]:
    out = io.BytesIO()
    if random.random() < 0.4:  # the header: its length stays
        old, new = ((b"<f8", b"|O8"), (b"(18,", b"(99,"), (b"(18,", b"(-1,"), (b"False", b"True "), (b"<U", b"<S"))[
            int(random.integers(5))
        ]
        return content.replace(old, new, 1), f"{old!r} became {new!r}"
    np.save(out, _changed_array(np.load(io.BytesIO(content)), random))
    return out.getvalue(), "another array"


def _change_npz(content: bytes, random: Random) -> tuple[bytes, str]:
    arrays = dict(np.load(io.BytesIO(content)))
    name = sorted(arrays)[int(random.integers(len(arrays)))]
    if random.random() < 0.2:
        del arrays[name]
    else:
        arrays[name] = _changed_array(arrays[name], random)
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue(), f"another {name}"


def _change_parquet(content: bytes, random: Random) -> tuple[bytes, str]:
    import pandas

    frame = pandas.read_parquet(io.BytesIO(content))
    name = frame.columns[int(random.integers(len(frame.columns)))]
    row = int(random.integers(len(frame)))
    match int(random.integers(5)):
        case 0:
            frame = frame.drop(columns=name)
        case 1:
            frame = frame.rename(columns={name: "label"}) if name != "label" else frame.assign(label=None)
        case 2:
            frame[name] = frame[name].astype(str)
        case 3:
            frame[name] = pandas.to_datetime(frame.index)
        case _:
            frame[name] = frame[name].astype(object).where(frame.index != row, None)
    if not frame.columns.is_unique:
        frame = frame.iloc[:, :1]
    out = io.BytesIO()
    frame.to_parquet(out)
    return out.getvalue(), f"another column {name}"


_CHANGES: dict[str, Callable[[bytes, Random], tuple[bytes, str]]] = {
    ".jsonl": _change_lines,
    ".csv": _change_csv,
    ".npy": _change_npy,
    ".npz": _change_npz,
    ".parquet": _change_parquet,
}
