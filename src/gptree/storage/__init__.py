"""Models on disk: folders written as a whole, records, settings and kernels as JSON and tensors."""

from gptree.storage.codec import (
    KERNEL,
    JsonValue,
    as_tuples,
    check_labels,
    check_load_arguments,
    decode,
    encode,
    labels_from_json,
    labels_to_json,
)
from gptree.storage.document import inside, parse_document
from gptree.storage.errors import StorageError, ensure, reading
from gptree.storage.fields import COUNT, Array, Number, Part, Sizes, agree, check_precision, check_types
from gptree.storage.files import clear_left_overs, write_atomically, write_figure
from gptree.storage.folder import (
    DOCUMENT,
    check_free,
    clear_spare,
    holds_nothing,
    read_folder,
    settled,
    write_folder,
)
from gptree.storage.kernels import kernel_from_parts, kernel_to_parts
from gptree.storage.locks import locked
from gptree.storage.record import Serializable, below, present, restore

__all__ = [
    "COUNT",
    "DOCUMENT",
    "KERNEL",
    "Array",
    "JsonValue",
    "Number",
    "Part",
    "Serializable",
    "Sizes",
    "StorageError",
    "agree",
    "as_tuples",
    "below",
    "check_free",
    "check_labels",
    "check_load_arguments",
    "check_precision",
    "check_types",
    "clear_left_overs",
    "clear_spare",
    "decode",
    "encode",
    "ensure",
    "holds_nothing",
    "inside",
    "kernel_from_parts",
    "kernel_to_parts",
    "labels_from_json",
    "labels_to_json",
    "locked",
    "parse_document",
    "present",
    "read_folder",
    "reading",
    "restore",
    "settled",
    "write_atomically",
    "write_figure",
    "write_folder",
]
