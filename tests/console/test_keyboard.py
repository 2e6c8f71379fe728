"""The console by keyboard: search from everywhere, keys that lead to pages, and the theme."""

from __future__ import annotations

import asyncio
import re
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import Locator, Page, Route, expect

from penstock.client import Client
from tests.console.conftest import step

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("worker")]


def run_of(api: Client, **more: str) -> tuple[str, str]:
    """A new workflow, and a run of it that goes on."""
    name = f"keys-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("wait", "console.signalled")]}))
    return name, api.start(name, labels=more or None).run_id


async def searched(page: Page, text: str) -> Locator:
    """The search, with this text in it."""
    await page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    await dialog.get_by_role("combobox").fill(text)
    return dialog


async def test_search_finds_runs_workflows_triggers_and_labels(page: Page, api: Client) -> None:
    tenant = uuid4().hex[:10]
    name, run_id = run_of(api, tenant=f"z{tenant}")
    api.put_trigger(orjson.dumps({"name": f"by-{name}", "workflow": name, "event": {"subject": f"event.{name}"}}))
    await page.goto("/console/runs")

    dialog = await searched(page, run_id[:20])
    await expect(dialog.get_by_role("option").first).to_contain_text(f"{name} · ")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/console/runs/{run_id}$"))

    dialog = await searched(page, name)
    await expect(dialog.get_by_role("option", name=f"Workflow {name}")).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("ArrowDown")
    await expect(dialog.get_by_role("option", name=f"Trigger by-{name}")).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name=f"by-{name}")).to_be_visible()

    dialog = await searched(page, f"z{tenant}")
    await expect(dialog.get_by_role("option", name=f"Label tenant:z{tenant}")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)

    dialog = await searched(page, "nothing has such a name")
    await expect(dialog.get_by_text("Nothing is found.")).to_be_visible()
    await page.keyboard.press("Escape")
    api.cancel(run_id)


async def test_what_is_typed_while_the_search_is_loaded_is_in_it(page: Page) -> None:
    typed = asyncio.Event()

    async def later(route: Route) -> None:
        await typed.wait()
        await route.continue_()

    await page.route("**/search-*.js", later)
    await page.goto("/console/workflows")
    await expect(page.get_by_role("heading", name="Workflows")).to_be_visible()
    for key in ("Control+k", "g", "r", "e"):
        await page.keyboard.press(key)
    typed.set()
    await expect(page.get_by_role("dialog", name="Search").get_by_role("combobox")).to_have_value("gre")
    await expect(page).to_have_url(re.compile("/console/workflows$"))  # g r would lead to the runs


async def test_search_begins_with_what_was_looked_at_last(page: Page, api: Client) -> None:
    name, run_id = run_of(api)
    await page.goto(f"/console/workflows/{name}")
    await expect(page.get_by_role("heading", name=name)).to_be_visible()
    await page.goto(f"/console/runs/{run_id}")
    dialog = await searched(page, "")
    await expect(dialog.get_by_role("option").nth(0)).to_contain_text(f"Run{run_id[:8]}")
    await expect(dialog.get_by_role("option").nth(1)).to_contain_text(f"Workflow{name}")
    api.cancel(run_id)


async def test_search_carries_out_actions_of_the_run_and_commands(page: Page, api: Client) -> None:
    _, run_id = run_of(api)
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await searched(page, "pause")
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator(".run-head").get_by_text("paused")).to_be_visible()
    assert api.get_run(run_id).paused_at is not None
    await searched(page, "theme: dark")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await searched(page, "utc")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="UTC")).to_be_visible()
    api.cancel(run_id)


async def test_keys_lead_to_pages_and_are_shown(page: Page) -> None:
    await page.goto("/console/runs")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    for key, name in (("w", "Workflows"), ("t", "Triggers"), ("r", "Runs")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    await expect(dialog.get_by_text("Search, or carry out a command")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


async def test_slash_goes_to_the_search_of_the_page_or_to_that_of_all(page: Page, api: Client) -> None:
    name, run_id = run_of(api)
    await page.goto("/console/workflows")
    field = page.get_by_label("Find workflows by name")
    await expect(field).to_be_visible()
    await page.keyboard.press("/")
    await expect(field).to_be_focused()
    await page.keyboard.type("g w ?")  # typed, not heard as keys
    await expect(field).to_have_value("g w ?")
    await page.goto(f"/console/triggers/{name}")
    await expect(page.get_by_text("404")).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.get_by_role("dialog", name="Search")).to_be_visible()
    api.cancel(run_id)


async def test_theme_is_remembered(page: Page) -> None:
    await page.goto("/console/workflows")
    await page.get_by_role("button", name="Theme: dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.get_by_role("button", name="Theme: dark")).to_have_attribute("aria-pressed", "true")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.get_by_role("button", name="Theme: system").click()
    await expect(page.locator("html")).not_to_have_attribute("data-theme", "dark")


async def test_navigation_can_be_used_on_a_narrow_screen(page: Page) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto("/console/workflows")
    await page.get_by_role("navigation").get_by_role("link", name="Triggers").click()
    await expect(page.get_by_role("heading", name="Triggers")).to_be_visible()
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("dialog", name="Search").get_by_role("option").first).to_be_visible()
