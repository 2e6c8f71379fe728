"""What the console shows is text, whatever it contains; and it shows nothing to whoever may not see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from penstock.client import Client
from tests.console.conftest import TIMEOUT_MS, step
from tests.support.service import Service

pytestmark = [pytest.mark.timeout(120)]

TOKEN = "the-token-of-the-service"
MARKUP = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that wants a token."""
    environ = {"SERVICE_API_TOKEN": TOKEN}
    with Service(tmp_path_factory.mktemp("guarded"), environ, shards=1, http_workers=1) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def stranger(browser: Browser, guarded: Service) -> AsyncIterator[Page]:
    """A browser that nobody has signed in with."""
    context = await browser.new_context(base_url=guarded.url)
    context.set_default_timeout(TIMEOUT_MS)
    yield await context.new_page()
    await context.close()


@pytest.mark.usefixtures("worker")
async def test_markup_in_values_is_shown_as_text(page: Page, api: Client) -> None:
    name = f"hostile-{uuid4().hex[:8]}"
    api.register(
        orjson.dumps({"name": name, "steps": [step("echo", "console.echo"), step("fail", "console.says", "echo")]})
    )
    run_id = api.start(name, orjson.dumps({MARKUP: MARKUP}), labels={"who": MARKUP}).run_id
    assert list(api.follow(run_id))
    for path in (f"/console/runs/{run_id}?step=fail", "/console/runs"):
        await page.goto(path)
        await expect(page.get_by_text("<img src=x").first).to_be_visible()
        assert 0 == await page.locator("img").count()
        assert "broken in" != await page.title()
    source = await (await page.request.get(f"/console/runs/{run_id}")).text()
    assert "<img" not in source
    assert "&lt;img src=x" in source


async def test_pages_allow_nothing_from_elsewhere_and_nothing_inline(page: Page) -> None:
    answer = await page.goto("/console")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "nosniff" == answer.headers["x-content-type-options"]


async def test_the_root_leads_to_the_console(page: Page) -> None:
    await page.goto("/")
    await expect(page).to_have_url("/console")


async def test_nobody_sees_anything_without_a_key(stranger: Page, guarded: Service) -> None:
    with Client(guarded.url, TOKEN) as api:
        api.register(orjson.dumps({"name": "secret-plan", "steps": [step("a", "console.nobody")]}))
        run_id = api.start("secret-plan").run_id
    answer = await stranger.goto(f"/console/runs/{run_id}")
    assert answer is not None
    assert "secret-plan" not in await answer.text()
    await expect(stranger.get_by_label("API key")).to_be_visible()

    await stranger.get_by_label("API key").fill("wrong")
    await stranger.get_by_role("button", name="Sign in").click()
    await expect(stranger.get_by_role("alert")).to_contain_text("a valid bearer token is needed")

    await stranger.get_by_label("API key").fill(TOKEN)
    await stranger.get_by_role("button", name="Sign in").click()
    await expect(stranger.get_by_role("link", name="secret-plan")).to_be_visible()
    [cookie] = await stranger.context.cookies()
    assert (True, "Strict") == (cookie["httpOnly"], cookie["sameSite"])

    await stranger.get_by_role("button", name="Pause").click()
    await stranger.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    await expect(stranger.locator(".run-head").get_by_text("paused")).to_be_visible()  # with the page's CSRF token

    await stranger.get_by_role("button", name="Sign out").click()
    await expect(stranger.get_by_label("API key")).to_be_visible()


async def test_who_may_not_come_in_sees_the_reason_and_the_way_out(stranger: Page) -> None:
    reason = "no API token is set, so only this machine is served: set api_token, or create a key"
    await stranger.route("**/session", lambda route: route.fulfill(status=403, json={"error": reason}))
    await stranger.goto("/console/runs")
    await expect(stranger.get_by_text("The service answers nobody here.")).to_be_visible()
    await expect(stranger.locator(".error-text")).to_contain_text(reason)
    await expect(stranger.get_by_role("navigation")).to_have_count(0)


async def test_a_key_that_may_only_read_gets_no_actions(stranger: Page, guarded: Service) -> None:
    with Client(guarded.url, TOKEN) as api:
        api.register(orjson.dumps({"name": "looked-at", "steps": [step("a", "console.nobody")]}))
        run_id = api.start("looked-at").run_id
        key = api.create_key(f"reader-{uuid4().hex[:6]}", scope="read").key
    await stranger.goto(f"/console/runs/{run_id}")
    await stranger.get_by_label("API key").fill(key)
    await stranger.get_by_role("button", name="Sign in").click()
    await expect(stranger.get_by_role("link", name="looked-at")).to_be_visible()
    await expect(stranger.get_by_role("button", name="Compare")).to_be_visible()
    for action in ("Pause", "Cancel…", "Signal…"):
        await expect(stranger.get_by_role("button", name=action)).to_have_count(0)


async def test_a_key_for_some_workflows_sees_no_others(stranger: Page, guarded: Service) -> None:
    with Client(guarded.url, TOKEN) as api:
        for name in ("mine-a", "theirs-a"):
            api.register(orjson.dumps({"name": name, "steps": [step("a", "console.nobody")]}))
        mine, theirs = api.start("mine-a").run_id, api.start("theirs-a").run_id
        key = api.create_key(f"some-{uuid4().hex[:6]}", scope="operate", workflow="mine-*").key
    await stranger.goto("/console")
    await stranger.get_by_label("API key").fill(key)
    await stranger.get_by_role("button", name="Sign in").click()
    await expect(stranger.get_by_text("mine-a").first).to_be_visible()
    await expect(stranger.get_by_text("theirs-a")).to_have_count(0)
    for run_id, shown in ((mine, True), (theirs, False)):
        answer = await stranger.goto(f"/console/runs/{run_id}")
        assert answer is not None
        assert shown == ("mine-a" in await answer.text())
        assert "theirs-a" not in await answer.text()


async def test_assets_are_kept_for_ever_and_nothing_beside_them_is_served(page: Page, service: Service) -> None:
    await page.goto("/console")
    address = await page.locator("script[src]").first.get_attribute("src")
    assert address is not None
    answer = await page.request.get(address)
    assert "immutable" in answer.headers["cache-control"]
    folder = address.rpartition("/")[0]
    for name in ("..%2fassets.py", "%2e%2e/assets.py", "none.js", "..%2f..%2f..%2fsetup.cfg"):
        assert 404 == (await page.request.get(f"{folder}/{name}")).status, name
    assert 404 == (await page.request.get(f"/console/assets/0000/{Path(address).name}")).status
