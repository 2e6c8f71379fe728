"""The console for everybody: by the rules of WCAG 2 AA as axe checks them, on narrow screens, in both themes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from penstock.client import Client
from penstock.engine.errors import Unavailable
from tests.console.conftest import TIMEOUT_MS, step
from tests.support.service import Service
from tests.support.tools import NODE_FOLDER
from tests.support.waiting import until_found

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("worker")]

AXE = NODE_FOLDER / "node_modules/axe-core/axe.min.js"
ALL = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
COLOURS = {"type": "rule", "values": ["color-contrast"]}  # all that differs in the other theme
FLAKY = {"max_attempts": 3, "strategy": "fixed", "initial_delay": "20ms"}
KEY = "a key of many characters: " + "x" * 98
THEMES: tuple[tuple[Literal["light", "dark"], dict[str, Any]], ...] = (("light", ALL), ("dark", COLOURS))
VIOLATIONS = """rules => axe.run(document, {runOnly: rules, resultTypes: ["violations"]})
    .then(found => found.violations.map(one => [one.id, one.nodes.slice(0, 3).map(node => node.target)]))"""
SHOWN = [
    *("runs", "failed", "step", "waits", "approvals", "workers", "letters", "letter"),
    *("workflows", "workflow", "triggers", "trigger", "system", "audit", "keys", "settings"),
    *("then", "compared", "limits", "limit", "key"),
]


@pytest.fixture(scope="module")
def pages(service: Service) -> dict[str, str]:
    """The addresses of pages, by what they show."""
    name = f"for-all-{uuid4().hex[:8]}"
    with Client(service.url) as api:
        steps = [
            step("fetch", "console.echo"),
            step("list", "console.list"),
            step("each", "console.element", "list", type="map", config={"on_item_failure": "continue"}),
            step("test", "console.flaky", "fetch", retry=FLAKY),
            step("publish", "console.broken", "test", "each"),
            step("announce", "console.echo", "publish"),
        ]
        api.register(orjson.dumps({"name": name, "steps": steps}))
        api.register(orjson.dumps({"name": f"{name}-waits", "steps": [step("train", "console.nobody")]}))
        api.put_trigger(orjson.dumps({"name": name, "workflow": name, "cron": {"expression": "0 3 1 1 *"}}))
        failed, waits = api.start(name, labels={"team": "all"}).run_id, api.start(f"{name}-waits").run_id
        other = api.start(name, b'"another"').run_id
        list(api.follow(failed))
        list(api.follow(other))
        events = api.events(failed)
        letter = next(iter(api.dead_letters(run_id=failed)))
        asked = step("consent", "", type="approval", config={"description": "Pay this out?", "subject": "finance"})
        del asked["task"]
        api.register(orjson.dumps({"name": f"{name}-asks", "steps": [asked]}))
        api.start(f"{name}-asks")
        limited = {"concurrency": [{"limit": 1, "key": "input"}], "steps": [step("wait", "console.signalled")]}
        api.register(orjson.dumps({"name": f"{name}-limited", **limited}))
        for _ in range(3):
            api.start(f"{name}-limited", orjson.dumps(KEY))
        until_found(lambda: waits_for_limit(api, f"{name}-limited"))
        api.set_limit(f"{name}-limited", 1)
    of_key = quote(KEY, safe="")
    return {
        "limits": "/console/limits",
        "limit": f"/console/limits/{name}-limited?kind=runs",
        "key": f"/console/limits/{name}-limited?kind=runs&key={of_key}",
        "approvals": "/console/approvals",
        "workers": "/console/workers",
        "letters": "/console/dead-letters",
        "system": "/console/system",
        "audit": "/console/system/audit",
        "keys": "/console/system/keys",
        "settings": "/console/system/settings",
        "then": f"/console/runs/{failed}?at={events[len(events) // 2].seq}",
        "compared": f"/console/runs/{failed}?with={other}",
        "letter": f"/console/dead-letters?run={failed}&letter={letter.seq}",
        "runs": "/console/runs",
        "failed": f"/console/runs/{failed}",
        "step": f"/console/runs/{failed}?step=each",
        "waits": f"/console/runs/{waits}",
        "workflows": "/console/workflows",
        "workflow": f"/console/workflows/{name}?step=test",
        "triggers": "/console/triggers",
        "trigger": f"/console/triggers/{name}",
    }


def waits_for_limit(api: Client, scope: str) -> bool:
    """Whether two runs wait; not before somebody owns the log of limits."""
    try:
        return any(one.scope == scope and one.waiting_total == 2 for one in api.limits())
    except Unavailable:
        return False


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def still(browser: Browser, service: Service) -> AsyncIterator[Page]:
    """One page for all these tests: they only look."""
    context = await browser.new_context(base_url=service.url, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MS)
    yield await context.new_page()
    await context.close()


async def show(page: Page, address: str, width: int) -> None:
    """Load what is there, until something is in it."""
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": width, "height": 800})
    await page.goto(address)
    await expect(
        page.locator(".row, .runs-row[data-run], tbody tr, .approval, .slots li, .instants li, .empty").first
    ).to_be_visible()
    if "?with=" in address:
        await expect(page.get_by_role("region", name="Comparison")).to_be_visible()


@pytest.mark.parametrize("shown", SHOWN)
async def test_axe_finds_nothing(still: Page, pages: dict[str, str], shown: str) -> None:
    """In the light theme, and in the dark one."""
    await show(still, pages[shown], width=1280)
    await still.evaluate(AXE.read_text())
    for theme, rules in THEMES:
        await still.emulate_media(color_scheme=theme)
        assert (theme, []) == (theme, await still.evaluate(VIOLATIONS, rules))


@pytest.mark.parametrize("shown", SHOWN)
async def test_nothing_is_wider_than_a_narrow_screen(still: Page, pages: dict[str, str], shown: str) -> None:
    await show(still, pages[shown], width=360)
    assert 360 >= await still.evaluate("document.documentElement.scrollWidth")
    frames = "[...document.querySelectorAll('.table-frame:has(.stack)')].map(one => one.scrollWidth - one.clientWidth)"
    assert all(wider <= 0 for wider in await still.evaluate(frames)), "rows of these tables break on narrow screens"
