"""What the fitted `classifier` of a deep classifier can do, as methods and attributes of that."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from gptree.estimators.forest import GPForestClassifier


def of_classifier(name: str) -> Callable[..., Any]:
    """A method of the fitted `classifier`, as one of the deep classifier: of its X it sees the embeddings."""
    method = getattr(GPForestClassifier, name)

    @wraps(method)
    def delegated(self: Any, *arguments: Any, **named: Any) -> Any:
        state, classifier = self._state(), copy.copy(classifier_with(self, name))
        given = inspect.signature(method).bind(classifier, *arguments, **named)
        if "X" in given.arguments:
            given.arguments["X"] = self.embed(given.arguments["X"])
        result = getattr(classifier, name)(*given.args[1:], **given.kwargs)
        if result is not classifier:
            return result
        self.state_ = replace(state, classifier=classifier)
        return self

    return delegated


def of_fitted_classifier(name: str) -> property:
    """What the fitted `classifier` shows under a name."""
    return property(
        lambda self: getattr(classifier_with(self, name), name), doc=f"`{name}` of the fitted `classifier`."
    )


def classifier_with(estimator: Any, name: str) -> Any:
    """The fitted `classifier` of a deep classifier, which must have an attribute."""
    classifier = estimator._state().classifier
    if not hasattr(classifier, name):
        raise AttributeError(
            f"{name} needs a classifier that can do it, such as classifier=GPForestClassifier(growth=Growth()); "
            f"this model has classifier={estimator.classifier!r}. With a folder=…, fitting again with another "
            "classifier trains nothing again."
        )
    return classifier
