"""The studio in a real browser: teaching, previews, taking back, two tabs, keys alone, dark, a phone, many classes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps
from playwright.sync_api import Page, expect
from sklearn.datasets import load_digits

from gptree.project import Project
from gptree.tree import build_tree

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
#: A folder for pictures of what the tests see.
PICTURES = os.environ.get("GPTREE_STUDIO_PICTURES")


@pytest.fixture(scope="module")
def server(served: Callable[..., Any]) -> Any:
    return served()


def ready(page: Page) -> None:
    page.wait_for_selector('body[data-state="ready"]')
    page.wait_for_selector(".map[data-points]:visible, .example:visible")


def version(page: Page) -> int:
    return int(page.get_attribute("body", "data-version") or 0)


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


def film(folder: Path) -> None:
    """Four of the pictures as one, for README."""
    steps = {
        "studio-1-tree": "1  A folder becomes a tree",
        "studio-2-five-examples": "2  Five examples of a new class",
        "studio-3-what-changed": "3  What changed",
        "studio-4-taken-back": "4  Taken back, to the last bit",
    }
    whole = Image.new("RGB", (1440, 2 * 494), "#ffffff")
    for number, (name, words) in enumerate(steps.items()):
        left, top = 724 * (number % 2), 494 * (number // 2)
        ImageDraw.Draw(whole).text((left + 6, top + 8), words, "#1b2226", ImageFont.load_default(20))
        frame = Image.open(folder / f"{name}.png").convert("RGB").resize((716, 447), Image.Resampling.LANCZOS)
        whole.paste(ImageOps.expand(frame, 1, "#c9cfd2"), (left, top + 40))
    whole.quantize(128, dither=Image.Dither.NONE).save(folder / "film.png", optimize=True)


def choose(page: Page, digit: int, n: int = 5) -> None:
    """Examples of a digit, from the list."""
    page.get_by_role("button", name="List", exact=True).click()
    page.get_by_role("searchbox").fill(f"unlabelled/{digit}-")
    expect(page.locator(".example")).to_have_count(10 if n < 10 else n)
    for k in range(n):
        page.locator(".example").nth(k).click()
    expect(page.locator(".tray-items li")).to_have_count(n)


def test_teach_preview_and_take_back(server: Any, visit: Callable[..., Page]) -> None:
    page = visit(server)
    ready(page)
    assert "token" not in page.url
    before = version(page)
    classes = page.locator(".block.leaf")
    expect(classes).to_have_count(3)
    choose(page, 3)
    page.fill("#class-name", "3")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#changes-title")).to_have_text("What would change")
    headline = page.locator(".changes .headline")
    previewed = re.findall(r"\d+", headline.inner_text())
    assert version(page) == before
    page.press("#class-name", "Enter")
    expect(page.locator("#changes-title")).to_have_text("What changed")
    assert re.findall(r"\d+", headline.inner_text()) == previewed
    expect(page.locator(".facts")).to_contain_text("test row")
    page.wait_for_selector(f'body[data-version="{before + 1}"]')
    expect(classes).to_have_count(4)
    expect(page.locator(".block.new")).to_contain_text("3")
    expect(page.locator("#live")).to_contain_text("changed")  # for those who listen
    page.get_by_role("button", name="Take back").first.click()
    page.wait_for_selector(f'body[data-version="{before + 2}"]')
    expect(classes).to_have_count(3)


def test_two_tabs_do_not_overwrite_each_other(server: Any, visit: Callable[..., Page]) -> None:
    first, second = visit(server), visit(server)
    for page in (first, second):
        ready(page)
    second.route("**/api/events", lambda route: route.abort())  # a tab that has not heard
    second.reload()
    ready(second)
    choose(second, 4)
    second.fill("#class-name", "4")
    before = version(first)
    choose(first, 3)
    first.fill("#class-name", "3")
    first.press("#class-name", "Enter")
    first.wait_for_selector(f'body[data-version="{before + 1}"]')
    second.press("#class-name", "Enter")
    expect(second.get_by_role("alert")).to_contain_text("Somebody else was faster")
    second.wait_for_selector(f'body[data-version="{before + 1}"]')
    expect(second.locator(".tray-items li")).to_have_count(5)  # nothing is lost
    second.press("#class-name", "Enter")
    second.wait_for_selector(f'body[data-version="{before + 2}"]')
    first.wait_for_selector(f'body[data-version="{before + 2}"]')  # the other tab is told
    for number in (3, 4):
        first.keyboard.press("Escape")
        first.locator("h2").first.click()
        first.keyboard.press("z")
        first.wait_for_selector(f'body[data-version="{before + number}"]')


def test_with_keys_alone(server: Any, visit: Callable[..., Page]) -> None:
    page = visit(server)
    ready(page)
    before = version(page)
    page.focus(".map canvas")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_be_visible()
    page.keyboard.press("0")
    page.focus("role=button[name='List']")
    page.keyboard.press("Enter")
    page.wait_for_selector(".example")
    page.focus(".example[tabindex='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator(".tray-items li")).to_have_count(1)
    page.focus(".block[tabindex='0']")
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".chip.on")).to_contain_text("Only")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator("#class-name")).to_be_focused()
    page.keyboard.type("9")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'body[data-version="{before + 1}"]')
    page.focus(".block[tabindex='0']")
    page.keyboard.press("z")
    page.wait_for_selector(f'body[data-version="{before + 2}"]')
    for key, screen in (("q", "queue"), ("h", "history"), ("y", "quality"), ("t", "teach")):
        page.keyboard.press(key)
        page.wait_for_selector(f'main[data-screen="{screen}"]')


def test_the_queue_collects_answers_and_teaches_them_at_once(server: Any, visit: Callable[..., Page]) -> None:
    page = visit(server, "#/queue")
    page.wait_for_selector(".card[data-id] .choices li:nth-child(3)")
    before = version(page)
    first = page.get_attribute(".card", "data-id")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'.card:not([data-id="{first}"]) .choices li:nth-child(2)')
    page.keyboard.press("s")
    page.keyboard.press("z")
    page.wait_for_selector(".card .choices li:nth-child(2)")
    page.keyboard.press("2")
    expect(page.get_by_role("button", name="Teach 2 answers")).to_be_enabled()
    page.get_by_role("button", name="Teach 2 answers").click()
    page.wait_for_selector(f'body[data-version="{before + 1}"]')
    expect(page.get_by_role("button", name="Teach answers")).to_be_visible()  # until then, z is for the answers
    expect(page.get_by_role("button", name="Take back").first).to_be_enabled()
    page.keyboard.press("z")
    page.wait_for_selector(f'body[data-version="{before + 2}"]')


def test_quality_history_and_class(server: Any, visit: Callable[..., Page]) -> None:
    page = visit(server, "#/quality")
    page.wait_for_selector(".quality-body[data-version] .charts svg path")
    expect(page.locator(".figure").first).to_contain_text("accuracy")
    page.goto(server.base + "#/history")
    expect(page.locator(".journal li").last).to_contain_text("Created")
    page.goto(server.base + "#/class/1")
    expect(page.locator("h1")).to_have_text("1")
    before = version(page)
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Rename a class").fill("one")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'body[data-version="{before + 1}"]')
    expect(page.locator("h1")).to_have_text("one")
    page.keyboard.press("z")
    page.wait_for_selector(f'body[data-version="{before + 2}"]')


def test_an_example_is_forgotten_after_a_question(served: Callable[..., Any], visit: Callable[..., Page]) -> None:
    page = visit(served(), "#/class/1")
    taught = page.get_by_role("listbox", name="Taught examples").locator(".example")
    expect(taught).to_have_count(8)
    first = taught.first.get_attribute("data-id") or ""
    taught.first.click()
    expect(page.get_by_role("dialog")).to_contain_text("cannot be taken back")
    page.get_by_role("button", name="Leave it").click()
    taught.first.focus()
    page.keyboard.press("Space")
    picture(page, "forget")
    page.get_by_role("button", name="Forget for good").click()
    page.wait_for_selector('body[data-version="2"]')
    expect(taught).to_have_count(7)
    assert first not in page.content()
    expect(page.get_by_role("button", name="Take back")).to_be_disabled()


def test_the_first_class_of_all(served: Callable[..., Any], visit: Callable[..., Page], tmp_path: Path) -> None:
    """A project without any label: the page asks for a class, and teaches it."""
    Project.create(tmp_path / "bare", load_digits().data[:40])
    page = visit(served(tmp_path / "bare"))
    ready(page)
    expect(page.locator(".icicle")).to_contain_text("No class yet")
    page.goto(page.url.partition("#")[0] + "#/queue")
    expect(page.locator(".question")).to_have_text("What is this?")
    page.goto(page.url.partition("#")[0] + "#/teach")
    page.get_by_role("button", name="List", exact=True).click()
    for k in range(3):
        page.locator(".example").nth(k).click()
    page.fill("#class-name", "zero")
    page.press("#class-name", "Enter")
    expect(page.locator(".block.leaf")).to_have_count(1)


def test_a_label_is_never_markup(served: Callable[..., Any], visit: Callable[..., Page], tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    texts = [f"the {word} number {i}" for word in ("red", "blue") for i in range(6)] + ["<b>red</b> number"]
    from gptree.embed import Encoder

    words = Encoder.of(letter_counts, name="letters/studio", dimension=26, kind="text")
    labels = [evil] * 6 + ["blue"] * 6 + [None]
    Project.create(tmp_path / "texts", texts, labels=labels, encoder=words)
    page = visit(served(tmp_path / "texts"))
    ready(page)
    expect(page.locator(".block.leaf", has_text=evil)).to_be_visible()
    page.get_by_role("button", name="List", exact=True).click()
    expect(page.locator(".example").first).to_contain_text("<b>red</b> number")
    assert page.locator("main img").count() == 0


def letter_counts(texts: list[str]) -> np.ndarray:
    return np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=float)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(server: Any, visit: Callable[..., Page], scheme: str) -> None:
    """Every screen by the rules of axe-core; in the dark, where colours differ, two."""
    page = visit(server, color_scheme=scheme, bypass_csp=True)
    ready(page)
    problems = []
    for name in ("teach", "queue") if scheme == "dark" else ("teach", "queue", "history", "class/1", "quality"):
        page.goto(f"{server.base}#/{name}")
        page.wait_for_selector(f'main[data-screen="{name.split("/")[0]}"] h1, main[data-screen="teach"] .block')
        if name == "quality":
            page.wait_for_selector(".quality-body[data-version]")
        page.add_script_tag(path=AXE)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems += [f"{name}: {each['id']}: {each['nodes'][0]['html'][:120]}" for each in found["violations"]]
    assert problems == []


def test_a_phone(server: Any, visit: Callable[..., Page]) -> None:
    page = visit(server, viewport={"width": 390, "height": 800})
    ready(page)
    for name in ("teach", "queue", "history", "quality"):
        page.goto(f"{server.base}#/{name}")
        page.wait_for_selector(f'main[data-screen="{name}"]')
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.goto(f"{server.base}#/teach")
    ready(page)
    picture(page, "studio-phone")


def test_five_thousand_classes_and_fifty_thousand_examples(server: Any, visit: Callable[..., Page]) -> None:
    """The page alone, which is told of a large project: it shows it, and no frame takes long."""
    rng, classes, n = np.random.default_rng(0), 5000, 50_000
    page = visit(server)
    ready(page)
    state = page.evaluate("fetch('/api/state').then(answer => answer.json())")
    tree = build_tree("random", rng.standard_normal((classes, 3)), range(classes), 0)
    names = [{"name": f"class {c}", "taught": 5, "answers": 10, "session": 0} for c in range(classes)]
    counts = {"examples": n, "pool": n, "test": 0, "taught": 0, "none": 0}
    large = {**state, "version": 99, "classes": names, "tree": tree.to_json(), "counts": counts}
    columns = (rng.random(n, "f4"), rng.random(n, "f4"), rng.integers(classes, size=n).astype("u2"))
    parts = (np.array([n, 99], "u4"), *columns, np.full(n, 200, "u1"), np.zeros(n, "u1"))
    page.route("**/api/state", lambda route: route.fulfill(json=large))
    page.route("**/api/map", lambda route: route.fulfill(body=b"".join(part.tobytes() for part in parts)))
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked() -> float:
        """Seconds of the processor that the page has used: the clock knows what else the machine does."""
        metrics = browser.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    before = worked()
    page.reload()
    page.wait_for_selector(f'.map[data-points="{n}"][data-frame]')
    assert page.locator(".block").count() < 2500
    assert worked() - before < 2.0
    frames = []
    page.focus(".map canvas")
    for key in ("+", "+", "-", "0", "ArrowRight", "ArrowDown"):
        before = worked()
        page.locator(".map").evaluate("(map) => delete map.dataset.frame")
        page.keyboard.press(key)
        page.wait_for_selector(".map[data-frame]")
        frames.append(worked() - before)
    assert np.median(frames) < 0.1
    page.locator(".block").nth(30).click()
    expect(page.locator(".crumbs")).to_contain_text("All classes")
    picture(page, "studio-many")


@pytest.mark.skipif(not PICTURES, reason="pictures for the documents: GPTREE_STUDIO_PICTURES=folder make browser")
def test_film(served: Callable[..., Any], visit: Callable[..., Page], tmp_path: Path) -> None:
    """Folder → tree → five examples of a new class → what changed → undo, on the digits of the start screen."""
    server = served(None)
    truth = load_digits().target
    page = visit(server)
    page.get_by_role("button", name="Try with digits").click()
    page.wait_for_selector(".map[data-points]", timeout=120_000)
    picture(page, "studio-1-tree")
    page.get_by_role("button", name="List", exact=True).click()
    page.wait_for_selector(".example")
    shown = page.locator(".example")
    sixes = [k for k in range(shown.count()) if truth[int(shown.nth(k).get_attribute("data-id")[-8:-4])] == 6]
    for k in sixes[:5]:
        shown.nth(k).click()
    page.fill("#class-name", "6")
    picture(page, "studio-2-five-examples")
    page.press("#class-name", "Enter")
    expect(page.locator("#changes-title")).to_have_text("What changed")
    page.get_by_role("button", name="Map", exact=True).click()
    page.wait_for_selector('body[data-version="2"]')
    page.wait_for_timeout(500)
    picture(page, "studio-3-what-changed")
    page.locator("h2").first.click()
    page.keyboard.press("z")
    page.wait_for_selector('body[data-version="3"]')
    page.wait_for_timeout(500)
    picture(page, "studio-4-taken-back")
    film(Path(PICTURES or ""))
    for name in ("queue", "quality", "history"):
        page.goto(f"{server.base}#/{name}")
        page.wait_for_selector({"queue": ".reasons", "quality": ".charts svg path", "history": ".journal li"}[name])
        page.wait_for_timeout(300)
        picture(page, f"studio-{name}")
    dark = visit(server, color_scheme="dark")
    ready(dark)
    dark.wait_for_timeout(300)
    picture(dark, "studio-dark")


def test_start_screen(served: Callable[..., Any], visit: Callable[..., Page]) -> None:
    page = visit(served(None))
    expect(page.get_by_role("button", name="Try with digits")).to_be_visible()
    expect(page.locator("main")).to_contain_text("nothing here to open")
    picture(page, "studio-start")
