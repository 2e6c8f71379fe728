"""The pages of workflows: how each is doing, the graph of one, what differs between versions, what is done with it."""

from __future__ import annotations

import re
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import Page, expect

from penstock.client import Client
from penstock.engine.errors import NotFound
from tests.console.conftest import step

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("worker")]


def registered(api: Client, *steps: dict[str, object], name: str | None = None, **more: object) -> str:
    """The name of a new workflow with these steps, or of one that there is."""
    name = name or f"flow-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": list(steps), **more}))
    return name


async def test_list_shows_runs_failures_and_durations_of_the_last_hour(page: Page, api: Client) -> None:
    good = registered(api, step("a", "console.echo"), version="5")
    bad = registered(api, step("a", "console.broken"), step("b", "console.nobody-serves", "a"))
    for run_id in [api.start(good).run_id, api.start(good).run_id, api.start(bad).run_id]:
        assert list(api.follow(run_id))  # until it has ended
    await page.goto("/console/workflows")

    row = page.get_by_role("row").filter(has_text=good)
    await expect(row.get_by_role("cell").nth(1)).to_have_text("5")
    await expect(row.get_by_role("cell").nth(3)).to_have_text("2")
    await expect(row.get_by_role("cell").nth(4)).to_have_text("0")
    await expect(row.get_by_role("cell").nth(6)).to_have_text(re.compile(r"\d ms|\d s"))
    await expect(row.get_by_role("img", name=f"{good}: 2 runs in 24 hours")).to_be_visible()
    failed = page.get_by_role("row").filter(has_text=bad)
    await expect(failed.get_by_role("cell").nth(4)).to_have_text("1")
    await expect(failed.get_by_text("nobody serves console.nobody-serves")).to_be_visible()

    assert list(api.follow(api.start(good).run_id))
    await expect(row.get_by_role("cell").nth(3)).to_have_text("3")

    await page.get_by_label("Find workflows by name").fill(good[:9].upper() + good[9:])
    await expect(failed).to_have_count(0)
    await page.get_by_label("Find workflows by name").fill("there is none of that name")
    await expect(page.get_by_text("No workflow has such a name.")).to_be_visible()


async def test_graph_shows_each_step_below_what_it_waits_for(page: Page, api: Client) -> None:
    name = registered(
        api,
        step("first", "console.echo", compensate={"task": "console.echo"}),
        step("left", "console.echo", "first", retries=3, timeout="30s"),
        step("right", "console.nobody", "first", when="true", on_failure={"task": "console.echo"}),
        step("last", "console.echo", "left", "right", "first"),
    )
    await page.goto(f"/console/workflows/{name}")
    first, left = [await page.locator(f'[data-step="{one}"]').bounding_box() for one in ("first", "left")]
    assert first is not None
    assert left is not None
    assert first["y"] < left["y"]
    await expect(page.locator(".graph .edge")).to_have_count(5)
    await expect(page.locator('[data-step="left"]')).to_contain_text("Up to 3 retries")
    await expect(page.locator('[data-step="right"]')).to_have_class(re.compile("missing"))

    await page.locator('[data-step="right"]').click()
    side = page.get_by_role("complementary", name="Step right")
    await expect(side).to_contain_text("nobody serves it")
    await expect(side.get_by_text("On failure")).to_be_visible()
    await expect(page.locator(".graph .edge.marked")).to_have_count(2)
    await expect(page).to_have_url(re.compile(r"\?step=right$"))
    await side.get_by_role("button", name="Close").click()
    await expect(side).to_have_count(0)


async def test_hostile_names_are_text(page: Page, api: Client) -> None:
    text = "<img src=x onerror=alert(1)>"
    name = registered(api, step("a", "console.echo", name=text, description=text), description=text)
    await page.goto(f"/console/workflows/{name}?step=a")
    await expect(page.get_by_text(text)).to_have_count(3)
    await expect(page.locator("main img[src]")).to_have_count(0)


async def test_two_versions_are_compared_line_by_line(page: Page, api: Client) -> None:
    name = registered(api, step("a", "console.echo"), version="1")
    registered(api, step("a", "console.echo"), step("b", "console.flaky", "a"), name=name, version="2")
    registered(api, step("a", "console.list"), step("b", "console.flaky", "a"), name=name, version="3")
    await page.goto(f"/console/workflows/{name}")
    versions = page.get_by_role("region", name="Versions")
    await expect(versions.locator(".d-gone", has_text="console.echo")).to_have_count(1)
    await expect(versions.locator(".d-new", has_text="console.list")).to_have_count(1)
    await versions.get_by_label("From version 1").check()
    await expect(versions.locator(".d-new", has_text="console.flaky")).to_have_count(1)
    await versions.get_by_label("From version 3").check()
    await expect(versions.get_by_text("the same", exact=True)).to_be_visible()


async def test_durations_of_steps_and_the_last_runs_are_shown(page: Page, api: Client) -> None:
    name = registered(api, step("quick", "console.echo"), step("wait", "console.signalled", "quick"))
    await page.goto(f"/console/workflows/{name}")
    await expect(page.get_by_text("No run yet.")).to_be_visible()
    run_id = api.start(name).run_id
    runs = page.get_by_role("region", name="Last runs").first
    await expect(runs.get_by_role("link", name=run_id[:8])).to_be_visible()
    api.signal(run_id, "go", b"1")
    assert list(api.follow(run_id))
    took = page.get_by_role("row").filter(has=page.get_by_role("img", name=re.compile("^quick: half within")))
    await expect(took.get_by_role("cell").last).to_have_text("1")


async def test_delete_names_what_needs_the_workflow(page: Page, api: Client) -> None:
    name = registered(api, step("a", "console.echo"))
    api.put_trigger(orjson.dumps({"name": f"of-{name}", "workflow": name, "event": {"subject": f"event.{name}"}}))
    await page.goto(f"/console/workflows/{name}")
    await expect(page.get_by_role("link", name=f"of-{name}")).to_be_visible()
    await page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Delete", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text(f"of-{name}")
    api.delete_trigger(f"of-{name}")
    await dialog.get_by_label("Delete it all the same").check()
    await dialog.get_by_text("The same by command").click()
    await expect(dialog.get_by_text(f"penstock workflow delete {name} --force")).to_be_visible()
    await dialog.get_by_role("button", name="Delete", exact=True).click()
    await expect(page).to_have_url(re.compile("/console/workflows$"))
    with pytest.raises(NotFound):
        api.workflow(name)


async def test_run_is_started_from_the_page(page: Page, api: Client) -> None:
    name = registered(api, step("a", "console.echo"))
    await page.goto(f"/console/workflows/{name}")
    await page.get_by_role("button", name="Start a run…").click()
    await page.get_by_role("dialog").get_by_role("button", name=re.compile("^Start")).click()
    await expect(page).to_have_url(re.compile("/console/runs/[0-9a-f]{32}$"))
    assert [name] == [run.workflow_id for run in api.runs(workflow=name)]
