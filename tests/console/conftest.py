"""A service with a worker, and a browser that looks at its console."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    ViewportSize,
    async_playwright,
    expect,
)

from penstock.client import Client
from tests.support.service import Service

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
# What a test machine as root, without a screen and without a way out, needs.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 20_000
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}
expect.set_options(timeout=TIMEOUT_MS)
HERE = Path(__file__).parent
WORKER = Path(__file__).with_name("console_worker.py")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests of a process: each uses workflows of its own."""
    if CHROMIUM is None and os.geteuid() != 0:
        pytest.skip("needs Chromium, which only root could install")
    with Service(tmp_path_factory.mktemp("console"), shards=1, http_workers=1) as started:
        yield started


@pytest.fixture(scope="session")
def worker(service: Service) -> Iterator[None]:
    """Serves the tasks console.*."""
    with serving(service):
        yield


@contextmanager
def serving(service: Service) -> Iterator[None]:
    """With a worker of the tasks console.*."""
    with (service.directory / "worker.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, str(WORKER)], env=service.environ, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()  # some of its tasks wait for ever: it would wait for them
            process.wait(20)


@pytest.fixture
def api(service: Service) -> Iterator[Client]:
    with Client(service.url) as opened:
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder share one event loop, as they share one browser: to start one takes a second."""
    for item in items:
        if HERE in item.path.parents and isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, service: Service) -> AsyncIterator[BrowserContext]:
    """A browser of the test's own. Who listens to the page, or alters it for good, asks for it."""
    async with opened(browser, service) as context:
        yield context


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kept(browser: Browser, service: Service) -> AsyncIterator[Page]:
    """A page for one test after the other: a page of its own costs each half a second of a core."""
    async with opened(browser, service) as context:
        yield await context.new_page()


@asynccontextmanager
async def opened(browser: Browser, service: Service) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(base_url=service.url, viewport=VIEWPORT)
    context.set_default_timeout(TIMEOUT_MS)
    yield context
    await context.close()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> BrowserContext | Page:
    """Where the test's page is: in a browser of its own if it asks for `context`, else the page that is kept."""
    found: BrowserContext | Page = request.getfixturevalue("context" if "context" in request.fixturenames else "kept")
    return found


@pytest_asyncio.fixture(loop_scope="session")
async def page(place: BrowserContext | Page, service: Service) -> AsyncIterator[Page]:
    """A page; whatever it reports as an error fails the test."""
    page = place if isinstance(place, Page) else await place.new_page()
    problems: list[str] = []

    def failed(error: Error) -> None:
        problems.append(str(error))

    def said(message: ConsoleMessage) -> None:
        if is_problem(message):
            problems.append(message.text)

    page.on("pageerror", failed)
    page.on("console", said)
    yield page
    await page.unroute_all(behavior="ignoreErrors")  # what a test altered may still be on its way
    page.remove_listener("pageerror", failed)
    page.remove_listener("console", said)
    if page is place:
        await forget(page, service.url)
    assert [] == problems


async def forget(page: Page, origin: str) -> None:
    """Leave nothing to the next test: no page, no pointer, nothing stored."""
    await page.mouse.move(-1, -1)  # nothing is hovered
    await page.goto("about:blank")
    await page.set_viewport_size(VIEWPORT)
    session = await page.context.new_cdp_session(page)
    await session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
    await session.detach()
    await page.context.clear_cookies()


def is_problem(message: ConsoleMessage) -> bool:
    """Whether it is an error of the page. Chromium reports requests that were refused, too, which pages show."""
    return message.type == "error" and "the server responded with a status of 4" not in message.text


def step(step_id: str, task: str, *depends_on: str, **more: Any) -> dict[str, Any]:
    """A step of a definition."""
    return {"id": step_id, "task": task, **({"depends_on": list(depends_on)} if depends_on else {}), **more}
