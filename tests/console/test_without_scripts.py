"""Pages that only show something do so without scripts, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from penstock.client import Client
from tests.console.conftest import TIMEOUT_MS, step
from tests.support.service import Service

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("worker")]


@pytest_asyncio.fixture(loop_scope="session")
async def plain(browser: Browser, service: Service) -> AsyncIterator[Page]:
    context = await browser.new_context(base_url=service.url, java_script_enabled=False)
    context.set_default_timeout(TIMEOUT_MS)
    yield await context.new_page()
    await context.close()


async def test_the_list_leads_to_a_run_with_its_steps_and_events(plain: Page, api: Client) -> None:
    name = f"plain-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("a", "console.echo"), step("b", "console.broken", "a")]}))
    run_id = api.start(name).run_id
    assert list(api.follow(run_id))

    await plain.goto("/console/runs")
    row = plain.get_by_role("row", name=run_id)
    await expect(row).to_contain_text("failed")
    await row.get_by_role("link").click()

    await expect(plain.get_by_role("heading", name=name)).to_be_visible()
    steps = plain.get_by_role("table").first
    await expect(steps.get_by_role("row").nth(1)).to_contain_text("completed")
    await expect(steps.get_by_role("row").nth(2)).to_contain_text("403 forbidden")
    await expect(plain.get_by_role("cell", name="workflow.failed")).to_be_visible()


async def test_a_run_that_does_not_exist_is_said_to(plain: Page) -> None:
    await plain.goto(f"/console/runs/{uuid4().hex}")
    await expect(plain.locator(".error-text")).to_contain_text("does not exist")
