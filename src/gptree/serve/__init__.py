"""A model behind HTTP: predictions in micro-batches, a new model without a gap, metrics; `gptree serve`.

`ModelWatch` holds the model of a folder and takes in a newer one, `Batcher` joins the requests that wait, `Service` is
the interface, and `serve` runs it.
"""

from gptree.serve.app import Service
from gptree.serve.batches import Batcher, BusyError
from gptree.serve.server import serve
from gptree.serve.watch import ModelWatch

__all__ = ["Batcher", "BusyError", "ModelWatch", "Service", "serve"]
