"""A service with a worker, and a browser that looks at its console."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

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
    context = await browser.new_context(base_url=service.url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> AsyncIterator[Page]:
    """A page; whatever it reports as an error fails the test."""
    page = await context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if is_problem(message) else None)
    yield page
    await page.unroute_all(behavior="ignoreErrors")  # what a test altered may still be on its way
    assert [] == problems


def is_problem(message: ConsoleMessage) -> bool:
    """Whether it is an error of the page. Chromium reports requests that were refused, too, which pages show."""
    return message.type == "error" and "the server responded with a status of 4" not in message.text


def step(step_id: str, task: str, *depends_on: str, **more: Any) -> dict[str, Any]:
    """A step of a definition."""
    return {"id": step_id, "task": task, **({"depends_on": list(depends_on)} if depends_on else {}), **more}
