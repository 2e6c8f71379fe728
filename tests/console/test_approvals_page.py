"""The page of the steps that wait for a decision."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import msgspec
import orjson
import pytest
from playwright.async_api import BrowserContext, Page, expect

from penstock.client import Client

pytestmark = pytest.mark.timeout(60)

HOSTILE = "<img src=x onerror=alert(1)>"


def asking(api: Client, **config: Any) -> tuple[str, str]:
    """A workflow with an approval, and a run that waits for it."""
    name = f"asks-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [{"id": "consent", "type": "approval", "config": config}]}))
    return name, ask(api, name)


def ask(api: Client, workflow: str) -> str:
    run_id = api.start(workflow).run_id
    next(event for event in api.follow(run_id) if event.type == "approval.requested")
    return run_id


def ended(api: Client, run_id: str) -> str:
    """The status with which it has ended."""
    assert list(api.follow(run_id))
    return api.get_run(run_id).status


async def test_what_waits_is_approved_and_rejected_with_a_comment(page: Page, api: Client) -> None:
    name, approved = asking(api, description="Pay this out?", subject="finance", metadata={"limit": "10000"})
    rejected = ask(api, name)
    await page.goto(f"/console/approvals?workflow={name}")
    items = page.locator(".approval")
    await expect(items).to_have_count(2)
    await expect(items.first).to_contain_text("Pay this out?")
    await expect(items.first).to_contain_text("subjectfinancelimit10000")
    await expect(items.first).to_contain_text(re.compile(r"waits \d+ s"))
    await expect(items.first).to_contain_text(re.compile(r"expires in \d+h"))
    await expect(items.first.get_by_role("link", name="consent")).to_have_attribute(
        "href", f"/console/runs/{approved}?step=consent"
    )

    await items.first.get_by_role("button", name="Approve").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Comment").fill("it's fine")
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text(f"penstock approval approve {approved} consent --comment 'it'\\''s fine'")
    await dialog.get_by_role("button", name="Approve", exact=True).click()
    await expect(items).to_have_count(1)
    assert "completed" == ended(api, approved)
    [granted] = [event for event in api.events(approved) if event.type == "approval.granted"]
    assert b"it's fine" in msgspec.json.encode(granted)

    await items.first.get_by_role("button", name="Reject").click()
    await dialog.get_by_label("Comment").fill("too much")
    await dialog.get_by_role("button", name="Reject", exact=True).click()
    await expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()
    assert "failed" == ended(api, rejected)


async def test_what_begins_to_wait_comes_by_itself_and_goes_when_another_decides(page: Page, api: Client) -> None:
    name, first = asking(api)
    await page.goto(f"/console/approvals?workflow={name}")
    await expect(page.locator(".approval")).to_have_count(1)
    ask(api, name)
    await expect(page.locator(".approval")).to_have_count(2)
    api.decide_by_right(first, "consent", "approve")
    await expect(page.locator(".approval")).to_have_count(1)


async def test_a_decision_that_comes_too_late_says_so(context: BrowserContext, api: Client) -> None:
    name, run_id = asking(api)
    page = await context.new_page()
    await page.goto(f"/console/approvals?workflow={name}")
    await page.get_by_role("button", name="Approve").click()
    api.decide_by_right(run_id, "consent", "reject")
    await page.get_by_role("dialog").get_by_role("button", name="Approve", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("is decided already")


async def test_names_are_text_and_soon_expiry_is_marked(page: Page, api: Client) -> None:
    name, _ = asking(api, description=HOSTILE, metadata={HOSTILE: HOSTILE}, timeout="30m")
    await page.goto(f"/console/approvals?workflow={name}")
    item = page.locator(".approval")
    await expect(item.get_by_role("heading", name=HOSTILE)).to_be_visible()
    await expect(item.locator(".badge.warn")).to_contain_text("expires in")
    await expect(page.locator("main img")).to_have_count(0)
