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
from gptree.storage.files import write_atomically
from gptree.storage.folder import DOCUMENT, StorageError, read_folder, write_folder
from gptree.storage.kernels import kernel_from_parts, kernel_to_parts
from gptree.storage.record import Serializable, below, present, restore

__all__ = [
    "DOCUMENT",
    "KERNEL",
    "JsonValue",
    "Serializable",
    "StorageError",
    "as_tuples",
    "below",
    "check_load_arguments",
    "decode",
    "encode",
    "kernel_from_parts",
    "kernel_to_parts",
    "labels_from_json",
    "labels_to_json",
    "present",
    "read_folder",
    "restore",
    "write_atomically",
    "write_folder",
]
