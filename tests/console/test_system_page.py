"""The page of the service itself: what is wrong with it, its figures, its audit log and its keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from penstock.client import Client
from tests.console.conftest import TIMEOUT_MS, step
from tests.support.service import Service

pytestmark = pytest.mark.timeout(120)


async def test_a_limit_that_lets_nothing_begin_is_found_and_leads_to_the_limits(page: Page, api: Client) -> None:
    name = f"closed-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("a", "console.echo")], "concurrency": [{"limit": 0}]}))
    run_id = api.start(name).run_id
    await page.goto("/console/system")
    found = page.get_by_role("region", name="Doctor").locator(".bad-finding", has_text=name)
    await expect(found).to_contain_text("lets nothing begin, and 1 waits for it")
    await found.get_by_role("link", name="Show them").click()
    await expect(page).to_have_url(re.compile("/console/limits$"))
    await expect(page.get_by_role("row").filter(has_text=name)).to_be_visible()
    api.cancel(run_id)


async def test_findings_have_remedies_and_the_figures_move(page: Page, api: Client) -> None:
    name = f"held-up-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("train", name)]}))
    run_id = api.start(name).run_id
    await page.goto("/console/system")
    await expect(page.get_by_text("healthy", exact=True)).to_be_visible()
    doctor = page.get_by_role("region", name="Doctor")
    await expect(doctor.locator(".bad-finding", has_text=name)).to_contain_text("Start a worker for it")
    await expect(doctor.locator(".bad-finding", has_text=name).get_by_role("link")).to_have_attribute(
        "href", "/console/workers"
    )
    await expect(doctor.get_by_role("list", name="Checks that found nothing")).to_contain_text("Clock")

    tasks = page.locator("figure", has_text="Tasks")
    await expect(tasks.get_by_text(re.compile(r"waiting [1-9]"))).to_be_visible()
    await expect(tasks.locator("canvas")).to_be_visible()
    requests = page.locator("figure", has_text="HTTP requests")
    await expect(requests.get_by_text(re.compile(r"all [0-9.]*[1-9][0-9.]*/s"))).to_be_visible(timeout=15_000)

    processes = page.get_by_role("region", name="Processes")
    shard = processes.get_by_role("row").filter(has_text="shard-0")
    await expect(shard).to_contain_text("32")
    await expect(shard).to_contain_text("penstock drain --host ")
    api.cancel(run_id)


async def test_the_broker_says_how_it_writes_and_what_is_stored_where(page: Page) -> None:
    await page.goto("/console/system")
    broker = page.get_by_role("region", name="Broker")
    await expect(broker.get_by_text("fsync = interval")).to_be_visible()
    await expect(broker.get_by_text("one, without copies")).to_be_visible()
    await expect(broker.get_by_text(re.compile("of 10 GiB used"))).to_be_visible()
    rows = broker.get_by_role("region", name="Streams").locator("tbody tr")
    await expect(rows).to_have_count(8)
    await broker.get_by_role("button", name="smaller ones").click()
    await expect(rows.filter(has_text="WORKFLOW_HISTORY")).to_have_count(1)
    await expect(broker.get_by_role("button", name="smaller ones")).to_have_count(0)


async def test_a_cluster_says_who_leads_and_which_copies_are_behind(page: Page) -> None:
    copies = [
        {"node": "two", "current": True, "online": True, "behind": 0},
        {"node": "three", "current": False, "online": True, "behind": 1200},
    ]
    streams = [
        {"stream": "WORKFLOW_HISTORY", "messages": 5, "bytes": 5000, "leader": "one", "copies": copies},
        {"stream": "TASK_QUEUES", "messages": 0, "bytes": 0, "leader": "", "copies": []},
    ]
    nodes = [
        {"node": name, "leads": leads, "follows": 1, "online": name != "two"}
        for name, leads in (("one", 1), ("two", 0), ("three", 0))
    ]
    broker = {
        "address": "nats://one:4222",
        "version": "2.15.1",
        "embedded": False,
        "storage_bytes": 5000,
        "nodes": nodes,
        "streams": streams,
        "cluster": "blue",
    }
    await page.route("**/broker", lambda route: route.fulfill(json=broker))
    await page.goto("/console/system")
    section = page.get_by_role("region", name="Broker")
    await expect(section.get_by_text("3 of cluster blue")).to_be_visible()
    await expect(section.get_by_text("1 node away")).to_be_visible()
    await expect(section.get_by_text("used, no known limit")).to_be_visible()
    await expect(section.get_by_role("row", name="WORKFLOW_HISTORY")).to_contain_text("three behind by 1,200")
    await expect(section.get_by_role("row", name="TASK_QUEUES").locator(".bad")).to_have_text("none")
    await expect(section.get_by_role("region", name="Nodes").get_by_role("row", name="two")).to_contain_text("away")


async def test_settings_are_shown_with_where_they_came_from(page: Page) -> None:
    await page.goto("/console/system")
    await page.get_by_role("link", name="Settings").click()
    rows = page.get_by_role("region", name="Settings").locator("tbody tr")
    await expect(rows.filter(has_text="http_workers")).to_contain_text("flag")
    await expect(rows.filter(has_text="broker_password")).to_contain_text("not set")
    await page.get_by_label("Find settings").fill("acknowledgement")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("fsync")
    await expect(rows).to_contain_text("default")


async def test_a_service_that_is_not_healthy_says_why(context: BrowserContext) -> None:
    page = await context.new_page()
    refusal = "the broker's storage is full"
    await page.route("**/health", lambda route: route.fulfill(status=503, body=refusal))
    await page.goto("/console/system")
    await expect(page.get_by_text("not healthy")).to_be_visible()
    await expect(page.get_by_role("alert").first).to_contain_text(refusal)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of its own, whose first key is made on its page."""
    with Service(tmp_path_factory.mktemp("keys"), shards=1, http_workers=1) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def admin(browser: Browser, locked: Service) -> AsyncIterator[Page]:
    context = await browser.new_context(base_url=locked.url, permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(TIMEOUT_MS)
    yield await context.new_page()
    await context.close()


async def test_keys_are_shown_once_and_what_is_done_with_them_is_audited(
    admin: Page, browser: Browser, locked: Service
) -> None:
    page, dialog = admin, admin.get_by_role("dialog")
    await page.goto("/console/system/keys")
    await expect(page.get_by_text("There are no keys.")).to_be_visible()
    await page.get_by_role("button", name="Create a key").click()
    await dialog.get_by_label("Name").fill("ada")
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text("penstock key create ada --scope admin")
    await dialog.get_by_role("button", name="Create", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("The key of ada is shown this one time")
    key = (await page.locator(".new-key .copy").get_attribute("title") or "").removeprefix("Copy the key: ")
    await expect(page.get_by_role("button", name="Sign out ada")).to_be_visible()
    await page.get_by_role("button", name="I have it").click()

    await page.get_by_role("button", name="Create a key").click()
    await dialog.get_by_label("Name").fill("dashboards")
    await dialog.get_by_label("Workflows").fill("order-*")
    await dialog.get_by_role("button", name="Create", exact=True).click()
    row = page.get_by_role("row").filter(has_text="dashboards")
    await expect(row).to_contain_text("order-*")
    await expect(row).to_contain_text("in 89d")
    await page.reload()
    await expect(row).to_be_visible()
    await expect(page.get_by_text("shown this one time")).to_have_count(0)
    with Client(locked.url, token=key) as api:
        ada, dashboards = api.keys()
        assert ("ada", "admin", None) == (ada.name, ada.scope, ada.workflow)
        assert ("dashboards", "read", "order-*") == (dashboards.name, dashboards.scope, dashboards.workflow)
        await row.get_by_role("button", name="Revoke").click()
        await dialog.get_by_role("button", name="Revoke", exact=True).click()
        await expect(row).to_have_count(0)
        [left] = api.keys()
        assert "ada" == left.name
        reader = api.create_key("grace", "read").key

    await page.get_by_role("link", name="Audit log").click()
    entries = page.get_by_role("region", name="Audit log").locator("tbody tr")
    await expect(entries.filter(has_text="revokeKey")).to_contain_text("/keys/dashboards")
    await page.get_by_role("searchbox").fill("createkey")
    await expect(entries.filter(has_text="revokeKey")).to_have_count(0)
    await expect(entries.first).to_contain_text("ada")

    context = await browser.new_context(base_url=locked.url)
    other = await context.new_page()
    await other.goto("/console/system")
    await other.get_by_label("API key").fill(reader)
    await other.get_by_role("button", name="Sign in").click()
    await expect(other.get_by_role("region", name="Doctor")).to_be_visible()
    await expect(other.get_by_role("link", name="Keys")).to_have_count(0)
    await expect(other.get_by_text("penstock drain")).to_have_count(0)
    await context.close()
