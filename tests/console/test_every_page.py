"""Every kind of page is found by links alone and loads without an error; and one that nobody sees asks for nothing."""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import BrowserContext, Page, Request, Response, expect

from penstock.client import Client
from penstock.engine.errors import Unavailable
from penstock.http.openapi.document import document
from tests.console.conftest import step
from tests.support.waiting import until_found

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("worker")]

PAGES = {
    "/console",
    "/console/approvals",
    "/console/dead-letters",
    "/console/dead-letters?letter",
    "/console/limits",
    "/console/limits/NAME?key,kind",
    "/console/limits/NAME?kind",
    "/console/runs",
    "/console/runs/ID",
    "/console/runs/ID?step",
    "/console/system",
    "/console/system/audit",
    "/console/system/keys",
    "/console/system/settings",
    "/console/triggers",
    "/console/triggers/NAME",
    "/console/workers",
    "/console/workflows",
    "/console/workflows/NAME",
}
HIDE = "Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});"
TELL = "away => { window.away = away; document.dispatchEvent(new Event('visibilitychange')); }"


def kind(address: str) -> str:
    """The address without ids, names, and what parameters say."""
    path, _, query = address.partition("#")[0].partition("?")
    path = re.sub(r"/runs/[0-9a-f]{32}", "/runs/ID", path)
    path = re.sub(r"/(workflows|triggers|limits)/[^/]+", r"/\1/NAME", path)
    names = sorted({one.partition("=")[0] for one in query.split("&") if one})
    return path + ("?" + ",".join(names) if names else "")


@cache
def documented() -> re.Pattern[str]:
    """Matches the paths of the API's document."""
    paths = document()["paths"]
    return re.compile("|".join(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(path)) for path in paths))


def public(path: str) -> bool:
    """Whether the path is one of the API's document: the console reads nothing that a script could not."""
    return documented().fullmatch(path) is not None


def holds_slot(api: Client, run_id: str) -> bool:
    """Whether the run is named as a holder; not before somebody owns the log of limits."""
    try:
        return any(held.run_id == run_id for one in api.limits() for held in one.holders)
    except Unavailable:
        return False


async def test_links_lead_to_every_page_and_none_is_broken(context: BrowserContext, page: Page, api: Client) -> None:
    name = f"linked-{uuid4().hex[:8]}"
    asked = {"id": "consent", "type": "approval", "depends_on": ["a"]}
    api.register(orjson.dumps({"name": name, "steps": [step("a", "console.echo"), asked]}))
    api.register(orjson.dumps({"name": f"{name}-fails", "steps": [step("b", "console.broken")]}))
    limited = {"concurrency": [{"limit": 1, "key": "input"}], "steps": [step("wait", "console.signalled")]}
    api.register(orjson.dumps({"name": f"{name}-limited", **limited}))
    holds = api.start(f"{name}-limited", b'"a key"').run_id
    until_found(lambda: holds_slot(api, holds))
    api.put_trigger(orjson.dumps({"name": name, "workflow": name, "cron": {"expression": "0 3 1 1 *"}}))
    waits = api.fire_trigger(name).run_id
    assert list(api.follow(api.start(f"{name}-fails").run_id))
    refused: list[str] = []

    def look(answer: Response) -> None:
        if answer.status >= 400:
            refused.append(f"{answer.status} {answer.url} on {page.url}")

    read: list[str] = []
    page.on("response", look)
    page.on("request", lambda request: read.append(urlsplit(request.url).path))
    found, waiting = {"/console": "/console"}, deque(["/console"])
    while waiting:
        await page.goto(waiting.popleft())
        await expect(page.locator("#page h1").first).to_be_visible()
        await expect(page.locator("#page .waiting")).to_have_count(0)
        hrefs = await page.eval_on_selector_all("a[href]", "links => links.map(link => link.getAttribute('href'))")
        for href in hrefs:
            if kind(href) not in found and href.startswith("/console"):
                found[kind(href)] = href
                waiting.append(href)
    assert set(found) >= PAGES, PAGES - set(found)
    assert [] == refused
    assert [] == [path for path in set(read) if not path.startswith("/console") and not public(path)]
    assert any(public(path) for path in read)
    api.cancel(waits)
    api.cancel(holds)


@pytest.mark.parametrize("path", ["runs", "runs/ID", "limits", "workers", "system"])
async def test_a_tab_that_is_hidden_asks_for_nothing(
    context: BrowserContext, page: Page, api: Client, path: str
) -> None:
    name = f"hidden-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("wait", "console.signalled")]}))
    run_id = api.start(name).run_id
    await page.clock.install()
    await page.add_init_script(HIDE)
    await page.goto(f"/console/{path.replace('ID', run_id)}")
    await expect(page.locator("#page h1").first).to_be_visible()
    await expect(page.locator("#page .waiting")).to_have_count(0)

    await page.clock.run_for(20_000)  # what is read a little later has been read, too

    await page.evaluate(TELL, True)
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    for _ in range(6):
        await page.clock.run_for(20_000)
    # Polled every 2 to 5 s it would be dozens. What was under way as the tab went may still have its next part read.
    assert len(asked) <= 2, [one.url for one in asked]

    async with page.expect_request(lambda request: True):
        await page.evaluate(TELL, False)
    api.cancel(run_id)
