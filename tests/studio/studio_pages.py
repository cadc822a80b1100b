"""What the tests of the studio share: pictures, and a studio as a page sees it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from starlette.testclient import TestClient

from gptree.studio.desk import Desk

PORT = 8123
TOKEN = "a-token-for-tests"
BASE = f"http://127.0.0.1:{PORT}"
HEADERS = {"X-Gptree": "1", "Origin": BASE}


def write_some_digits(folder: Path) -> None:
    """0 to 2 with labels, 0 to 4 waiting, 0 to 3 for testing."""
    x, y = load_digits(return_X_y=True)
    grey = (255 - np.asarray(x) * (255 / 16)).round().astype(np.uint8).reshape(-1, 8, 8)
    for digit in range(5):
        rows = np.flatnonzero(np.asarray(y) == digit)
        parts = {"train/unlabelled": rows[8:18]}
        if digit < 3:
            parts[f"train/{digit}"] = rows[:8]
        if digit < 4:
            parts[f"test/{digit}"] = rows[20:26]
        for name, some in parts.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            for row in some:
                Image.fromarray(grey[row]).save(folder / name / f"{digit}-{row:04}.png")


class Page:
    """A studio, as a page sees it."""

    def __init__(self, client: TestClient, desk: Desk, root: Path) -> None:
        self.client, self.desk, self.root = client, desk, root

    def get(self, path: str, **how: Any) -> Any:
        return self.client.get(f"/api/{path}", **how)

    def post(self, path: str, body: dict[str, Any], **how: Any) -> Any:
        return self.client.post(f"/api/{path}", json=body, headers=HEADERS, **how)

    def forget(self, key: str, body: dict[str, Any]) -> Any:
        return self.client.request("DELETE", f"/api/examples/{key}", json=body, headers=HEADERS)

    def state(self) -> dict[str, Any]:
        return self.get("state").json()

    def wait(self, *states: str, seconds: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = self.state()
            if state["state"] in states:
                return state
            time.sleep(0.01)
        raise AssertionError(f"still {state['state']}: {state['message']}")

    def pool(self, digit: int, n: int) -> list[str]:
        found = self.get(f"examples?text=unlabelled/{digit}-&split=pool&limit={n}").json()
        return [each["id"] for each in found["examples"]]
