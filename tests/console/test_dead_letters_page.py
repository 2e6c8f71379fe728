"""The page of dead letters: by reason, one with its body, replayed and discarded, one and many."""

from __future__ import annotations

import re
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import Page, expect

from penstock.client import Client
from tests.console.conftest import step

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("worker")]

HOSTILE = "<img src=x onerror=alert(1)>"


def failed(api: Client, task: str, *inputs: object) -> list[str]:
    """Runs of a step `s` of a task that fails for good, when they have."""
    name = f"dead-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("s", task)]}))
    ids = [api.start(name, orjson.dumps(one)).run_id for one in inputs]
    assert all("workflow.failed" == list(api.follow(run_id))[-1].type for run_id in ids)
    return ids


def letters(api: Client, *run_ids: str) -> int:
    return sum(len(list(api.dead_letters(run_id=run_id))) for run_id in run_ids)


async def test_reasons_select_and_the_panel_shows_one_with_its_body(page: Page, api: Client) -> None:
    word = uuid4().hex[:8]
    first, second, _ = failed(api, "console.says", f"{word} red", f"{word} blue", f"{word} blue")
    await page.goto("/console/dead-letters?task=console.says")
    reasons = page.get_by_role("group", name="Reasons")
    await reasons.get_by_role("button", name=f"it is {word} blue").click()
    rows = page.locator(".letters tbody tr")
    await expect(rows).to_have_count(2)
    await expect(page).to_have_url(re.compile(r"reason=it\+is\+" + word))
    await reasons.get_by_role("button", name=f"it is {word} red").click()
    await expect(rows).to_have_count(1)
    await expect(rows.get_by_role("link", name=first[:8])).to_have_attribute("href", f"/console/runs/{first}?step=s")

    await rows.get_by_role("link", name="it is").click()
    panel = page.get_by_role("complementary")
    await expect(panel.locator(".error-text")).to_have_text(f"it is {word} red")
    await expect(panel.get_by_role("region", name="Body")).to_contain_text(f"input{word} red")
    await panel.get_by_role("button", name="its dead letters").click()
    await expect(page).to_have_url(re.compile(f"run={first}"))
    await page.keyboard.press("Escape")
    assert 1 == letters(api, second)


async def test_large_bodies_are_read_on_demand(page: Page, api: Client) -> None:
    [run_id] = failed(api, "console.broken", {"long": "x" * 100_000})
    await page.goto(f"/console/dead-letters?run={run_id}")
    await page.locator(".letter-error").click()
    panel = page.get_by_role("complementary")
    button = panel.get_by_role("button", name=re.compile("^Read 9[0-9] KiB$"))
    await expect(panel.get_by_role("region", name="Body")).to_have_count(0)
    await button.click()
    await expect(panel.get_by_role("region", name="Body")).to_contain_text("xxxxx")


async def test_one_is_replayed_and_comes_back_when_it_fails_again(page: Page, api: Client) -> None:
    [run_id] = failed(api, "console.broken", 1)
    [before] = api.dead_letters(run_id=run_id)
    await page.goto(f"/console/dead-letters?run={run_id}&letter={before.seq}")
    await page.get_by_role("complementary").get_by_role("button", name="Replay").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text(f"penstock dlq replay {before.seq}")
    await dialog.get_by_role("button", name="Replay", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("1 run resumed.")
    row = page.locator(".letters tbody tr")
    await expect(row.get_by_role("checkbox")).not_to_have_accessible_name(f"Select {before.seq}")
    await expect(row.locator("td").nth(4)).to_have_text("2")
    [after] = api.dead_letters(run_id=run_id)
    assert after.seq > before.seq


async def test_many_are_replayed_at_once(page: Page, api: Client) -> None:
    word = uuid4().hex[:8]
    ids = failed(api, "console.says", word, word, word)
    await page.goto(f"/console/dead-letters?task=console.says&reason=it+is+{word}")
    rows = page.locator(".letters tbody tr")
    await expect(rows).to_have_count(3)
    await page.get_by_role("checkbox", name="Select all that are shown").check()
    await page.get_by_role("region", name="Selection").get_by_role("button", name="Replay").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("3 runs go on at the step that has failed")
    await dialog.get_by_role("button", name="Replay", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("3 runs resumed.")
    await expect(rows.filter(has_text="2")).to_have_count(3)
    assert {"workflow.failed"} == {list(api.follow(run_id))[-1].type for run_id in ids}


async def test_discarding_is_undone_and_sent_by_whoever_leaves(page: Page, api: Client) -> None:
    word = uuid4().hex[:8]
    ids = failed(api, "console.says", word, word)
    await page.goto(f"/console/dead-letters?task=console.says&reason=it+is+{word}")
    rows = page.locator(".letters tbody tr")
    await expect(rows).to_have_count(2)
    await page.get_by_role("checkbox", name="Select all that are shown").check()
    discard = page.get_by_role("region", name="Selection").get_by_role("button", name="Discard", exact=True)
    await discard.click()
    await expect(rows).to_have_count(0)
    await expect(page.get_by_role("status")).to_contain_text("at once if you leave this page")
    assert 2 == letters(api, *ids)
    await page.get_by_role("button", name="Undo").click()
    await expect(rows).to_have_count(2)

    await page.get_by_role("checkbox", name="Select all that are shown").check()
    await discard.click()
    async with page.expect_response(lambda answer: answer.request.method == "DELETE") as answered:
        await page.get_by_role("navigation").get_by_role("link", name="Runs").click()
    assert (await answered.value).ok
    await page.goto(f"/console/dead-letters?run={ids[0]}")
    await expect(page.get_by_text("No dead letter is like that.")).to_be_visible()


async def test_discarding_goes_out_after_six_seconds(page: Page, api: Client) -> None:
    [run_id] = failed(api, "console.broken", 1)
    await page.goto(f"/console/dead-letters?run={run_id}")
    await page.locator(".letter-error").click()
    async with page.expect_response(lambda answer: answer.request.method == "DELETE") as answered:
        await page.get_by_role("complementary").get_by_role("button", name="Discard", exact=True).click()
        await expect(page.get_by_role("status")).to_contain_text("1 dead letter discarded in 6 s")
        assert 1 == letters(api, run_id)
    assert (await answered.value).ok
    assert 0 == letters(api, run_id)


async def test_new_ones_come_by_themselves_and_errors_are_text(page: Page, api: Client) -> None:
    name = f"hostile-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("s", "console.says")]}))
    await page.goto("/console/dead-letters?task=console.says")
    await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    api.start(name, orjson.dumps(f"{name} {HOSTILE}"))
    link = page.get_by_role("link", name=f"it is {name} {HOSTILE}")
    await link.click()
    await expect(page.get_by_role("complementary").locator(".error-text")).to_have_text(f"it is {name} {HOSTILE}")
    await expect(page.locator("main img")).to_have_count(0)
