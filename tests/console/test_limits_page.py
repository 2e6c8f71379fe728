"""The pages of limits: who holds and who waits, and what a person can do about it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from penstock.client import Client
from penstock.client.limits.views import LimitView
from penstock.engine.errors import Unavailable
from tests.console.conftest import step
from tests.support.service import Service
from tests.support.waiting import until_found

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("worker")]

HOSTILE = "<img src=x onerror=alert(1)>" + "\"'&/?#%\\ \t${{}}é漢🙂" + "x" * 80
assert 120 < len(HOSTILE) <= 128


def limited(api: Client, **more: Any) -> str:
    """The name of a workflow whose one step runs until a signal `go` comes."""
    name = f"limited-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("work", "console.signalled")], **more}))
    return name


def section(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def holding(api: Client, name: str, count: int, **limit: Any) -> list[str]:
    """Runs of the workflow, once so many wait or hold."""
    runs = [api.start(name, **limit).run_id for _ in range(count)]
    until_found(lambda: count == sum(one.holders_total + one.waiting_total for one in of_scope(api, name)))
    return runs


def of_scope(api: Client, scope: str) -> list[LimitView]:
    """None as long as nobody owns the log of limits, which the first limit of a service has made."""
    try:
        return [one for one in api.limits(limit=1000) if one.scope == scope]
    except Unavailable:
        return []


def end(api: Client, *runs: str) -> None:
    for run_id in runs:
        api.cancel(run_id)


async def test_page_shows_who_holds_and_who_waits_and_follows(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 1}])
    first, second, third = holding(api, name, 3)
    await page.goto("/console/limits")
    row = page.get_by_role("row").filter(has_text=name)
    await expect(row).to_contain_text("1 run at a time")
    await expect(row).to_contain_text("1 of 1")
    await expect(row.locator("[data-label=waiting]")).to_have_text("2")
    await expect(row.get_by_role("link", name=name).last).to_have_attribute("href", f"/console/workflows/{name}")
    await row.get_by_role("link", name=name).first.click()
    await expect(page.get_by_role("heading", name=name)).to_be_visible()

    held, waiting = section(page, "Holders").get_by_role("listitem"), section(page, "Waiting").get_by_role("listitem")
    await expect(held).to_have_count(1)
    await expect(held.get_by_role("link")).to_have_attribute("href", f"/console/runs/{first}")
    await expect(held).to_contain_text(re.compile(r"for \d+ s since \d\d:\d\d:\d\d"))
    await expect(waiting).to_have_count(2)
    await expect(waiting.first).to_contain_text(re.compile(r"^1\..*all slots are taken"))
    await expect(waiting.first.get_by_role("link")).to_have_attribute("href", f"/console/runs/{second}")
    await expect(waiting.last.get_by_role("link")).to_have_attribute("href", f"/console/runs/{third}")

    end(api, first)
    await expect(held.get_by_role("link")).to_have_attribute("href", f"/console/runs/{second}")
    await expect(waiting).to_have_count(1)
    await held.get_by_role("link").click()
    await expect(page).to_have_url(re.compile(f"/console/runs/{second}$"))
    end(api, second, third)


async def test_executions_name_their_step(page: Page, api: Client) -> None:
    name = f"limited-{uuid4().hex[:8]}"
    one = step("work", "console.signalled", concurrency=[{"limit": 1, "scope": f"{name}-pool"}])
    api.register(orjson.dumps({"name": name, "steps": [one]}))
    first, second = api.start(name).run_id, api.start(name).run_id
    await page.goto(f"/console/limits/{name}-pool")
    held = section(page, "Holders").get_by_role("listitem")
    await expect(held.get_by_role("link", name="work")).to_have_attribute("href", f"/console/runs/{first}?step=work")
    await expect(section(page, "Waiting").get_by_role("link", name="work")).to_be_visible()
    registered = section(page, "Registered by").get_by_role("link", name=f"{name} / work")
    await registered.click()
    await expect(page.get_by_role("complementary", name="Step work")).to_be_visible()
    limits = section(page, "Limits")
    await expect(limits).to_contain_text("1 execution at a time")
    await limits.get_by_role("link", name=f"{name}-pool").click()
    await expect(page).to_have_url(re.compile(rf"/console/limits/{name}-pool\?kind=executions$"))
    end(api, first, second)


async def test_keys_of_any_characters_lead_to_their_page(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 1, "key": "input"}])
    runs = [api.start(name, orjson.dumps(key)).run_id for key in (HOSTILE, HOSTILE, "", "plain")]
    until_found(lambda: 3 == len(of_scope(api, name)))
    await page.goto(f"/console/limits/{name}?kind=runs")
    keys = section(page, "Keys").get_by_role("row")
    await expect(keys).to_have_count(4)
    await expect(section(page, "Holders")).to_contain_text("Each key has its own.")
    hostile = keys.filter(has_text="onerror")
    await expect(hostile.locator("[data-label=waiting]")).to_have_text("1")
    await hostile.get_by_role("link").click()
    await expect(page.locator(".one-facts code")).to_have_text(HOSTILE, use_inner_text=False)
    await expect(section(page, "Holders").get_by_role("listitem")).to_have_count(1)
    await expect(section(page, "Waiting").get_by_role("listitem")).to_have_count(1)
    await expect(page.locator("main img")).to_have_count(0)

    await page.set_viewport_size({"width": 360, "height": 740})
    assert 360 >= await page.evaluate("document.documentElement.scrollWidth")
    await page.get_by_role("link", name="all keys").click()
    await section(page, "Keys").get_by_role("link", name="(empty)").click()
    await expect(page).to_have_url(re.compile(r"key=$"))
    await expect(section(page, "Holders").get_by_role("listitem")).to_have_count(1)
    await page.goto("/console/limits?q=onerror")
    assert 360 >= await page.evaluate("document.documentElement.scrollWidth")
    end(api, *runs)


async def test_rate_shows_its_tokens_and_when_the_next_one_comes(page: Page, api: Client) -> None:
    name = limited(api, rate_limit=[{"limit": 1, "per": "10m"}])
    await page.goto(f"/console/limits/{name}")
    numbers = page.locator(".one-numbers")
    await expect(numbers).to_contain_text("1 in 10m")
    await expect(numbers).to_contain_text("Tokens1")
    runs = [api.start(name).run_id for _ in range(2)]
    await expect(numbers).to_contain_text("Tokens0")
    await expect(numbers).to_contain_text(re.compile(r"Next tokenin (9m|10m)"))
    await expect(section(page, "Waiting").get_by_role("listitem")).to_contain_text("no token is left")
    await expect(section(page, "Holders")).to_have_count(0)
    end(api, *runs)


async def test_override_lets_who_waits_begin_and_is_undone(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 1}])
    runs = holding(api, name, 2)
    await page.goto(f"/console/limits/{name}")
    await page.get_by_role("button", name="Override…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("So many runs at a time").fill("2")
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text(f"penstock limit set {name} --kind runs 2")
    await expect(dialog).to_contain_text("-X PUT")
    await dialog.get_by_role("button", name="Override", exact=True).click()
    await expect(section(page, "Holders").get_by_role("listitem")).to_have_count(2)
    await expect(page.locator(".limit-override")).to_contain_text("2 runs at a time")
    assert 2 == api.limit(name).limit

    await page.get_by_role("status").get_by_role("button", name="Undo").click()
    await expect(page.locator(".limit-override")).to_have_count(0)
    assert 1 == api.limit(name).limit
    await expect(section(page, "Holders").get_by_role("listitem")).to_have_count(2)  # nobody is ended
    end(api, *runs)


async def test_override_is_taken_back_and_that_is_undone(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 3}])
    api.set_limit(name, 0)
    await page.goto("/console/limits")
    row = page.get_by_role("row").filter(has_text=name)
    await expect(row).to_contain_text("overridden")
    await expect(row).to_contain_text("nothing begins")
    await row.get_by_role("link", name=name).first.click()
    await page.get_by_role("button", name="Take back…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(f"3 runs at a time counts again, at once, as {name} has registered it.")
    await dialog.get_by_role("button", name="Take back", exact=True).click()
    await expect(page.get_by_role("button", name="Take back…")).to_have_count(0)
    assert 3 == api.limit(name).limit
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("button", name="Take back…")).to_be_visible()
    assert 0 == api.limit(name).limit


async def test_override_of_one_key_is_apart_from_that_of_all(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 1, "key": "input"}])
    api.set_limit(name, 5)
    await page.goto(f"/console/limits/{name}?kind=runs&key={quote('<b>', safe='')}")
    await expect(page.locator(".limit-override")).to_contain_text("5 runs at a time for all keys")
    await expect(page.get_by_role("link", name="Take back for all keys")).to_be_visible()
    await page.get_by_role("button", name="Override…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("So many runs at a time").fill("7")
    await dialog.get_by_role("button", name="Override", exact=True).click()
    await expect(page.locator(".one-numbers")).to_contain_text("7 runs at a time")
    assert (7, 5) == (api.limit(name, key="<b>").limit, api.limit(name).limit)
    await page.get_by_role("button", name="Take back…").click()
    await expect(dialog).to_contain_text("What counts for all keys counts for this one again")
    await dialog.get_by_role("button", name="Take back", exact=True).click()
    await expect(page.locator(".one-numbers")).to_contain_text("5 runs at a time")


async def test_rate_is_overridden_and_a_mistake_is_named(page: Page, api: Client) -> None:
    name = limited(api, rate_limit=[{"limit": 1, "per": "1m"}])
    await page.goto(f"/console/limits/{name}?kind=rate")
    await page.get_by_role("button", name="Override…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("So many").fill("20")
    await dialog.get_by_label("In a time").fill("soon")
    await dialog.get_by_role("button", name="Override", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text('per "soon" is not a duration')
    await dialog.get_by_label("In a time").fill("30s")
    await dialog.get_by_label("At once").fill("4")
    await dialog.get_by_role("button", name="Override", exact=True).click()
    await expect(page.locator(".one-numbers")).to_contain_text("20 in 30s, 4 at once")
    rate = api.limit(name).rate_limit
    assert rate is not None
    assert (20, "30s", 4) == (rate.limit, rate.per, rate.burst)


async def test_limit_is_found_by_search_and_by_keyboard(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 1}])
    await page.goto("/console/runs")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    await page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    await dialog.get_by_role("combobox").fill(name)
    await dialog.get_by_role("option", name=f"Limit {name}").click()
    await expect(page).to_have_url(re.compile(rf"/console/limits/{name}\?kind=runs$"))
    await page.keyboard.press("g")
    await page.keyboard.press("l")
    await expect(page.get_by_role("heading", name="Limits")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type(name)
    link = page.get_by_role("row").filter(has_text=name).get_by_role("link").first
    await link.focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Override…").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog").get_by_label("So many runs at a time")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_reason_of_a_run_that_waits_leads_to_its_limit(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 1, "key": "input"}])
    first, second = api.start(name, b'"a key"').run_id, api.start(name, b'"a key"').run_id
    until_found(lambda: any(one.waiting_total == 1 for one in of_scope(api, name)))
    await page.goto(f"/console/runs/{second}")
    await page.get_by_role("link", name="the limit").click()
    await expect(page.get_by_role("heading", name=name)).to_be_visible()
    await expect(page).to_have_url(re.compile(r"\?kind=runs&key=a\+key$"))
    await expect(page.locator(".one-facts code")).to_have_text("a key")
    await expect(section(page, "Waiting").get_by_role("listitem")).to_have_count(1)
    end(api, second, first)


async def test_page_without_limits_says_how_to_have_one(page: Page) -> None:
    async def none(route: Route) -> None:
        await route.fulfill(json=[])

    await page.route("**/limits?limit=*", none)
    await page.goto("/console/limits")
    await expect(page.get_by_text("No workflow has a limit yet.")).to_be_visible()
    await expect(page.locator(".empty")).to_contain_text('"concurrency": [{"limit": 2')


async def test_unknown_limit_is_said_to_be(page: Page) -> None:
    await page.goto("/console/limits/nothing-of-this-name")
    await expect(page.get_by_role("alert")).to_contain_text("404")
    await page.get_by_role("link", name="Back to the list").click()
    await expect(page.get_by_role("heading", name="Limits")).to_be_visible()


async def test_who_may_only_read_sees_no_buttons(page: Page, api: Client) -> None:
    name = limited(api, concurrency=[{"limit": 1}])

    async def reader(route: Route) -> None:
        await route.fulfill(json={"scope": "read", "name": "reader"})

    await page.route(lambda url: urlsplit(url).path == "/session", reader)
    await page.goto(f"/console/limits/{name}")
    await expect(page.get_by_role("button", name="Sign out reader")).to_be_visible()
    await expect(page.locator(".one-numbers")).to_contain_text("1 run at a time")
    await expect(page.get_by_role("button", name="Override…")).to_have_count(0)


async def test_without_scripts_it_says_what_other_pages_say(browser: Browser, service: Service) -> None:
    """Chromium shows no <noscript> where Playwright has turned scripts off: it is looked for in the document."""
    context = await browser.new_context(base_url=service.url, java_script_enabled=False)
    plain = await context.new_page()
    await plain.goto("/console/limits/some")
    assert "Everything else needs scripts." in await plain.content()
    await expect(plain.locator(".error-text")).to_have_count(0)
    await context.close()
