"""Models on disk: folders written as a whole, records, settings and kernels as JSON and tensors."""

from gptree.storage.codec import (
    KERNEL,
    JsonValue,
    as_tuples,
    check_load_arguments,
    decode,
    encode,
    labels_from_json,
    labels_to_json,
)
from gptree.storage.files import clear_left_overs, write_atomically, write_figure
from gptree.storage.folder import (
    DOCUMENT,
    StorageError,
    check_free,
    holds_nothing,
    read_folder,
    settled,
    write_folder,
)
from gptree.storage.kernels import kernel_from_parts, kernel_to_parts
from gptree.storage.locks import locked
from gptree.storage.record import Serializable, below, present, restore

__all__ = [
    "DOCUMENT",
    "KERNEL",
    "JsonValue",
    "Serializable",
    "StorageError",
    "as_tuples",
    "below",
    "check_free",
    "check_load_arguments",
    "clear_left_overs",
    "decode",
    "encode",
    "holds_nothing",
    "kernel_from_parts",
    "kernel_to_parts",
    "labels_from_json",
    "labels_to_json",
    "locked",
    "present",
    "read_folder",
    "restore",
    "settled",
    "write_atomically",
    "write_figure",
    "write_folder",
]
