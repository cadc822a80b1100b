"""Pictures and texts → vectors: collections, encoders, a store of what was encoded, and `embed` that joins them."""

from gptree.embed.collection import Collection, Failure, Item
from gptree.embed.embedding import Embedding, embed
from gptree.embed.encoders import Encoder, encoder, encoder_of
from gptree.embed.folders import ImageFolder
from gptree.embed.pictures import Preprocessing, UnreadableError
from gptree.embed.store import Shelf, Store
from gptree.embed.tables import Table

__all__ = [
    "Collection",
    "Embedding",
    "Encoder",
    "Failure",
    "ImageFolder",
    "Item",
    "Preprocessing",
    "Shelf",
    "Store",
    "Table",
    "UnreadableError",
    "embed",
    "encoder",
    "encoder_of",
]
