"""Take the pictures of docs/console.md: start `penstock demo --console`, wait until what they show is there, and
photograph each page, light and dark. Called by scripts/screenshots."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from load.console_browser import browser
from load.small_png import reduced
from playwright.async_api import Browser, Page

from penstock.client import Client
from penstock.client.views import RunView

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
PENSTOCK = Path(sys.executable).with_name("penstock")
WIDTH, HEIGHT = 1280, 800
WAIT_S_MAX, POLL_S = 120.0, 0.2
STOP_S_MAX = 40.0
T = TypeVar("T")


class Picture(NamedTuple):
    """`path` is that of the page below the console; `shows` are selectors of what must be seen, `keys` are pressed
    once the page is there, and it is looked at for `open_s` before, so that its charts and rates have something to
    show."""

    path: str
    shows: Sequence[str]
    height: int = HEIGHT
    keys: Sequence[str] = ()
    open_s: float = 0.0


class Shown(msgspec.Struct):
    """What the demonstration prints."""

    console: str


def pictures(api: Client) -> dict[str, Picture]:
    """What is photographed, by name, once all of it is there."""
    undone = _found(lambda: _first(api, "shop.order", lambda run: run.compensation == "completed"))
    review = _found(lambda: _first(api, "site.code-review", lambda run: run.status == "failed" and not run.rerun_of))
    waiting = _found(lambda: _first(api, "lab.protein-folding", lambda run: "sequence" in _completed(api, run)))
    gallery = _found(lambda: _first(api, "newsroom.gallery", _labelled("album", "opera-night"), "completed"))
    research = _found(lambda: _first(api, "lab.research", _labelled("by", "Dalia Haddad"), "completed"))
    events = _found(lambda: api.events(review.run_id))
    _found(lambda: list(api.approvals(workflow="shop.refund")) and list(api.approvals(workflow="site.code-review")))
    _found(lambda: len(list(api.dead_letters())) > 2)
    return {
        "runs": Picture("/runs", [".status"]),
        "run": Picture(f"/runs/{review.run_id}", [".row[data-step='announce']", ".event"], height=860),
        "run-undone": Picture(f"/runs/{undone.run_id}", [".row[data-step='ship']", ".event"]),
        "run-waiting": Picture(f"/runs/{waiting.run_id}", [".row[data-step='fold']", "[role=status]"], height=560),
        "run-map": Picture(f"/runs/{gallery.run_id}", [".row[data-step='shrink']", ".event"], height=620),
        "run-step": Picture(f"/runs/{research.run_id}?step=report", ["[aria-label='Step report']"]),
        "run-then": Picture(f"/runs/{review.run_id}?at={events[len(events) // 2].seq}", [".row[data-step='announce']"]),
        "workflows": Picture("/workflows", ["a[href*='shop.order']"]),
        "workflow": Picture("/workflows/shop.order", ["#page h1"]),
        "triggers": Picture("/triggers", ["a[href*='site-push']"], height=620),
        "approvals": Picture("/approvals", ["text=Put this on the website?"], height=620),
        "dead-letters": Picture("/dead-letters", ["text=Atlantis"], height=620),
        "limits": Picture("/limits", ["text=Utrecht", "text=messages"], height=620),
        "limit": Picture("/limits/vans?kind=runs&key=Utrecht", ["[aria-label=Waiting] li"], height=480),
        "workers": Picture("/workers", ["text=lab.gpu.fold", "text=tasks a minute"], open_s=10),
        "system": Picture("/system", ["text=Storage"], height=1000, open_s=30),
        "search": Picture("/runs", ["dialog[open]", "dialog >> text=shop.order"], 620, ["Control+k", *"shop"]),
    }


async def photograph(url: str, wanted: dict[str, Picture]) -> None:
    """Every picture, in both colour schemes."""
    PICTURES.mkdir(exist_ok=True)
    async with browser() as found:
        for name, picture in wanted.items():
            for scheme in ("light", "dark"):
                data = reduced(await _taken(found, url, picture, scheme))
                (PICTURES / f"{name}-{scheme}.png").write_bytes(data)
                print(f"{name}-{scheme}.png  {len(data) // 1000} KB", flush=True)


async def _taken(found: Browser, url: str, picture: Picture, scheme: str) -> bytes:
    context = await found.new_context(
        viewport={"width": WIDTH, "height": picture.height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = await context.new_page()
    await page.goto(url + picture.path)
    if picture.keys:
        await page.wait_for_selector("#page h1")
    for key in picture.keys:
        await page.keyboard.press(key)
        if key == "Control+k":
            await page.wait_for_selector("dialog[open] input")
    for selector in picture.shows:
        await page.wait_for_selector(selector)
    await asyncio.sleep(picture.open_s)
    await _settled(page)
    data = await page.screenshot()
    await context.close()
    return data


async def _settled(page: Page) -> None:
    """Wait for the font, and for a second in which the page keeps its height."""
    await page.evaluate("document.fonts.ready")
    await page.evaluate("""() => new Promise((done) => {
      let height = 0, since = performance.now();
      const look = (now) => {
        if (document.body.scrollHeight !== height) { height = document.body.scrollHeight; since = now; }
        if (now - since > 1000) done(); else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    })""")


@contextmanager
def demonstration() -> Iterator[str]:
    """The console of `penstock demo --console`, for the time of the block."""
    process = subprocess.Popen([PENSTOCK, "demo", "--console", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            if not (line := process.stdout.readline()):
                raise RuntimeError("the demonstration has ended")
            text += line
        yield msgspec.json.decode(text, type=Shown).console
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_S_MAX)


def _first(api: Client, workflow: str, fits: Callable[[RunView], object], status: str | None = None) -> RunView | None:
    """The oldest run of a workflow that fits."""
    return next((run for run in reversed(list(api.runs(workflow=workflow, status=status))) if fits(run)), None)


def _labelled(name: str, value: str) -> Callable[[RunView], bool]:
    return lambda run: (run.labels or {}).get(name) == value


def _completed(api: Client, run: RunView) -> set[str]:
    return {name for name, step in api.get_run(run.run_id).steps.items() if step.status == "completed"}


def _found(find: Callable[[], T | None]) -> T:
    """What `find` gives, as soon as there is something. Raises TimeoutError."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := find()):
        if time.monotonic() > deadline:
            raise TimeoutError("the demonstration does not show what is to be photographed")
        time.sleep(POLL_S)
    return found


def main(names: Sequence[str]) -> None:
    with demonstration() as url, Client(url.removesuffix("/console")) as api:
        wanted = pictures(api)
        if unknown := set(names) - set(wanted):
            raise SystemExit(f"no pictures of these names: {', '.join(sorted(unknown))}")
        asyncio.run(photograph(url, {name: one for name, one in wanted.items() if not names or name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
