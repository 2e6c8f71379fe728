"""The console in a real browser: what a page loads, when it is there, how it scrolls, when it shows an event."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]
AS_ROOT = ["--no-sandbox"]
PAGE_MS_MAX = 60_000
SCROLLED_MS = 2_000
FRAME_MS = 1000 / 60

# When the first steps and the events are drawn, and a frame has come after that.
INTERACTIVE = """
const look = () => {
  const drawn = document.querySelector('.row[data-step]') && document.querySelector('.events');
  if (!drawn) return requestAnimationFrame(look);
  requestAnimationFrame(() => requestAnimationFrame(() => { window.benchInteractive = performance.now(); }));
};
requestAnimationFrame(look);
"""
WHOLE = """() => {
  const head = document.querySelector('.events-head h2');
  return head !== null && !head.textContent.includes('…') && window.benchInteractive ? performance.now() : 0;
}"""
SCROLL = """(milliseconds) => new Promise((done) => {
  const begin = performance.now();
  let frames = 0;
  const step = (now) => {
    frames += 1;
    scrollBy(0, 60);
    if (now - begin < milliseconds) requestAnimationFrame(step); else done([frames, now - begin]);
  };
  requestAnimationFrame(step);
})"""
# The time at which each step was first seen in each state.
SEEN = """() => {
  window.benchSeen = {};
  const look = () => {
    for (const row of document.querySelectorAll('.row[data-step]')) {
      for (const state of ['running', 'completed']) {
        const name = `${row.dataset.step} ${state}`;
        if (name in benchSeen || !row.querySelector(`.o-${state}`)) continue;
        benchSeen[name] = performance.timeOrigin + performance.now();
      }
    }
  };
  const what = { childList: true, subtree: true, attributes: true, attributeFilter: ['class'] };
  new MutationObserver(look).observe(document.body, what);
  look();
}"""


class Loaded(NamedTuple):
    """The first page, with nothing cached. `requests` are those until its rows were there; `kb` of files, as sent."""

    kb: float
    requests: int
    paint_ms: float


class Opened(NamedTuple):
    """A run's page. `interactive_s` until its first rows, `whole_s` until all events; `frames` is the share of frames
    that came in time while it was scrolled, in %."""

    interactive_s: float
    whole_s: float
    frames: float
    heap_mb: float


def chromium() -> str | None:
    """The program: the one that is made to run without a screen takes half of the CPU."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Chromium, for the time of the block. Raises RuntimeError when there is none."""
    from playwright.async_api import async_playwright

    path = chromium()
    if path is None:
        raise RuntimeError("needs Chromium: apt-get install chromium-headless-shell")
    async with async_playwright() as playwright:
        flags = [*FLAGS, *(AS_ROOT if os.geteuid() == 0 else [])]
        found = await playwright.chromium.launch(executable_path=path, args=flags)
        yield found
        await found.close()


@asynccontextmanager
async def page(found: Browser, height: int = 900) -> AsyncIterator[Page]:
    """A page with a cache of its own."""
    context = await found.new_context(viewport={"width": 1440, "height": height})
    context.set_default_timeout(PAGE_MS_MAX)
    yield await context.new_page()
    await context.close()


async def first_page(found: Browser, url: str) -> Loaded:
    async with page(found) as opened:
        requests: list[str] = []
        sent: dict[str, float] = {}
        ours: dict[str, str] = {}
        opened.on("request", lambda request: requests.append(request.url))
        tools = await opened.context.new_cdp_session(opened)
        tools.on("Network.responseReceived", lambda event: ours.update({event["requestId"]: event["response"]["url"]}))
        tools.on("Network.loadingFinished", lambda event: sent.update({event["requestId"]: event["encodedDataLength"]}))
        await tools.send("Network.enable")
        await opened.goto(f"{url}/console")
        await opened.wait_for_selector("#page a[href*='/console/runs/']")
        count = len(requests)
        paint = await opened.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    files = sum(size for request, size in sent.items() if "/console" in ours.get(request, ""))
    return Loaded(files / 1000, count, paint)


async def run_page(found: Browser, url: str, run_id: str) -> Opened:
    async with page(found) as opened:
        await opened.add_init_script(INTERACTIVE)
        await opened.goto(f"{url}/console/runs/{run_id}")
        whole = await opened.wait_for_function(WHOLE)
        interactive_ms = await opened.evaluate("window.benchInteractive")
        whole_ms = await whole.json_value()
        frames, took_ms = await opened.evaluate(SCROLL, SCROLLED_MS)
        tools = await opened.context.new_cdp_session(opened)
        await tools.send("HeapProfiler.collectGarbage")
        heap = await tools.send("Runtime.getHeapUsage")
    in_time = min(100.0, frames / (took_ms / FRAME_MS) * 100)
    return Opened(interactive_ms / 1000, whole_ms / 1000, in_time, heap["usedSize"] / 1e6)


async def watch(opened: Page, url: str, run_id: str) -> None:
    """Open the page of a run, and write down from then on what is seen when."""
    await opened.goto(f"{url}/console/runs/{run_id}")
    await opened.wait_for_selector(".row[data-step] .bar")
    await opened.evaluate(SEEN)


async def seen(opened: Page, last: str) -> Mapping[str, float]:
    """When each step was seen in each state, in ms since 1970, once the `last` one has completed."""
    await opened.wait_for_function(f"() => {last + ' completed'!r} in window.benchSeen")
    found: Mapping[str, float] = await opened.evaluate("window.benchSeen")
    return found


class Asked(NamedTuple):
    """A GET request for the API. `cache` is what it says about older answers, empty for none."""

    path: str
    cache: str = ""


async def asked(found: Browser, url: str, query: str, stay_ms: float) -> Sequence[Asked]:
    """What the list of runs asks the API for in so many ms."""
    requests: list[Asked] = []

    def note(request: Any) -> None:
        path = request.url.removeprefix(url)
        if request.method == "GET" and not path.startswith("/console"):
            requests.append(Asked(path, request.headers.get("cache-control", "")))

    async with page(found) as opened:
        opened.on("request", note)
        await opened.goto(f"{url}/console/runs{query}")
        await opened.wait_for_selector("#page h1")
        await opened.wait_for_timeout(stay_ms)
    return requests
