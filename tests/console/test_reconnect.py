"""A page that is open while the service is killed: it says so, and goes on without a gap when the service is back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import Browser, expect

from penstock.client import Client
from tests.console.conftest import TIMEOUT_MS, serving, step
from tests.support.service import Service

pytestmark = pytest.mark.timeout(180)


async def test_a_page_goes_on_after_the_service_was_killed(browser: Browser, tmp_path: Path) -> None:
    with Service(tmp_path / "killed", shards=1, http_workers=1) as service, serving(service):
        name = f"killed-{uuid4().hex[:8]}"
        with Client(service.url) as api:
            steps = [
                step("first", "console.echo"),
                step("wait", "console.signalled", "first"),
                step("last", "console.echo", "wait"),
            ]
            api.register(orjson.dumps({"name": name, "steps": steps}))
            run_id = api.start(name).run_id
        context = await browser.new_context(base_url=service.url)
        context.set_default_timeout(TIMEOUT_MS)
        page = await context.new_page()
        await page.goto(f"/console/runs/{run_id}")
        await expect(page.locator('.row[data-step="wait"] .o-running')).to_have_count(1)

        await asyncio.to_thread(service.kill_all)
        await expect(page.get_by_text("connection lost, trying again")).to_be_visible()
        await asyncio.to_thread(service.start)
        await expect(page.get_by_text("connection lost, trying again")).to_have_count(0)

        with Client(service.url) as api:
            api.signal(run_id, "go", b"1")
            events = await asyncio.to_thread(lambda: list(api.follow(run_id)))
        await expect(page.locator(".run-head .status").first).to_have_text("completed")
        await expect(page.locator(".event")).to_have_count(len(events))
        assert [str(event.seq) for event in events] == await page.locator(".event-seq").all_text_contents()
