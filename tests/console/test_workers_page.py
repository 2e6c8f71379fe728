"""The page of workers and of the queues that they take tasks from."""

from __future__ import annotations

import re
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import Page, expect

from penstock.client import Client
from tests.console.conftest import step

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("worker")]


async def test_who_serves_what_and_how_busy_they_are(page: Page, api: Client) -> None:
    name = f"busy-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("wait", "console.busy")]}))
    await page.goto("/console/workers")
    team = page.locator(".team").filter(has_text="console.echo")
    await expect(team.locator("tbody tr")).to_have_count(1)
    await expect(team.locator("tbody tr")).to_contain_text("python, broker")
    await expect(team.locator("tbody tr")).to_contain_text("kill -TERM ")
    await expect(team.locator(".busy")).to_contain_text("of 20 busy")

    run_id = api.start(name).run_id
    row = page.get_by_role("row").filter(has_text="console.busy")
    await expect(row.locator("td").nth(2)).to_have_text("1")
    await expect(team.locator(".busy")).to_contain_text(re.compile("[1-9][0-9]? of 20 busy"))
    api.signal(run_id, "go", b"1")
    # The signal is stored before it is in the history, so the run may end first.
    assert "workflow.completed" in {event.type for event in api.follow(run_id)}
    await expect(row).to_have_count(0)
    await expect(team.locator(".busy")).to_contain_text(re.compile(r"[0-9.]*[1-9][0-9.]* tasks a minute"))


async def test_what_nobody_serves_stands_first_and_says_what_to_do(page: Page, api: Client) -> None:
    task = f"nobody-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": task, "steps": [step("train", task, worker_group="gpu")]}))
    run_id = api.start(task).run_id
    await page.goto("/console/workers")
    row = page.get_by_role("row").filter(has_text=task)
    await expect(row).to_contain_text("group gpu")
    await expect(row).to_contain_text("nobody serves it")
    await expect(page.get_by_role("status")).to_contain_text("for a worker that is not there")
    await expect(page.locator(".queues tbody tr").first).to_have_class("nobody")
    await page.get_by_role("searchbox").fill(task)
    await expect(page.locator(".queues tbody tr")).to_have_count(1)
    await expect(page.get_by_role("status")).to_contain_text(f"{task} in group gpu")
    api.cancel(run_id)
    await expect(page.get_by_role("status")).to_have_count(0)


async def test_without_workers_the_page_says_how_to_make_one(page: Page) -> None:
    for path in ("workers", "tasks"):
        await page.route(f"**/{path}", lambda route: route.fulfill(json=[]))
    await page.goto("/console/runs")
    await page.get_by_role("navigation").get_by_role("link", name="Workers").click()
    await expect(page.get_by_text("No worker is there yet.")).to_be_visible()
    await expect(page.locator("pre.example")).to_contain_text("worker.run()")
