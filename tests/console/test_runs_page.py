"""The list of runs: filters, numbers over time, rows that say why a run waits, and what is done with many of them."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import BrowserContext, Locator, Page, Route, expect

from penstock.client import Client
from penstock.engine.run.state import RUN_ENDED
from tests.console.conftest import step
from tests.support.waiting import until_true

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("worker")]

HOSTILE = "<img src=x onerror=alert(1)>'\"&"
ALL_THAT_MATCH = re.compile(r"^All .*that match$")  # "or more" where counting takes longer than is shown by the way


def workflow(api: Client, *steps: dict[str, Any], **more: Any) -> str:
    """The name of a new workflow with these steps, or with one that gives back its input."""
    name = f"list-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": list(steps) or [step("echo", "console.echo")], **more}))
    return name


def started(api: Client, name: str, value: object = None, **more: Any) -> str:
    return api.start(name, orjson.dumps(value), **more).run_id


def ended(api: Client, *run_ids: str) -> None:
    for run_id in run_ids:
        assert list(api.follow(run_id))


def row(page: Page, run_id: str) -> Locator:
    return page.locator(f'.runs-row[data-run="{run_id}"]')


async def test_rows_say_why_runs_wait_and_what_they_failed_of(page: Page, api: Client) -> None:
    name = workflow(api, step("train", "console.nobody"), step("after", "console.echo", "train"))
    broken = workflow(api, step("fetch", "console.echo"), step("publish", "console.broken", "fetch"))
    waiting = started(api, name, {"pull": 17}, labels={"team": "payments"})
    failed = started(api, broken, {"order": 81}, labels={"team": "payments", "of": name})
    ended(api, failed)

    await page.goto(f"/console/runs?workflow={name}")
    await expect(row(page, waiting)).to_contain_text('none serves task "console.nobody" now')
    await expect(row(page, waiting).locator(".status")).to_have_text("held up")
    await expect(row(page, waiting).locator(".steps-strip")).to_contain_text("2 steps: 1 queued, 1 waiting")
    await expect(row(page, failed)).to_have_count(0)

    await page.goto(f"/console/runs?label=of:{name}")
    await expect(row(page, failed)).to_contain_text("403 forbidden: the registry has refused")
    await expect(row(page, failed)).to_contain_text('{"order":81}')
    await expect(row(page, failed).locator(".steps-strip-count")).to_have_text("1/2")


async def test_filters_stand_in_the_address(page: Page, api: Client) -> None:
    name = workflow(api)
    runs = [
        started(api, name, number, labels={"team": team, "of": name}) for number, team in enumerate(["a", "b", "b"])
    ]
    ended(api, *runs)
    await page.goto("/console/runs")
    await page.get_by_label("Workflow", exact=True).select_option(name)
    await expect(page).to_have_url(re.compile(f"workflow={name}"))
    await expect(page.locator(".runs-row[data-run]")).to_have_count(3)

    await row(page, runs[1]).get_by_role("button", name="team b").click()
    await expect(page).to_have_url(re.compile("label=team%3Ab"))
    await expect(page.locator(".runs-row[data-run]")).to_have_count(2)
    await page.get_by_role("button", name="Without team:b").click()
    await expect(page.locator(".runs-row[data-run]")).to_have_count(3)

    failed = page.get_by_role("group", name="Statuses").get_by_role("button", name="failed")
    await failed.click()
    await expect(page.get_by_text("No run matches.")).to_be_visible()
    await expect(page).to_have_url(re.compile("status=failed"))
    await page.go_back()
    await expect(page.get_by_role("button", name=re.compile("^completed"))).to_contain_text("3")
    await expect(page.locator(".runs-row[data-run]")).to_have_count(3)

    await page.keyboard.press("/")
    await page.keyboard.type(runs[0])
    await expect(page.locator(".runs-row[data-run]")).to_have_count(1)
    await expect(page).to_have_url(re.compile(f"q={runs[0]}"))
    await page.reload()
    await expect(page.get_by_role("searchbox")).to_have_value(runs[0])
    await expect(row(page, runs[0])).to_be_visible()


async def test_labels_and_triggers_can_be_typed_and_clicked(page: Page, api: Client) -> None:
    name = workflow(api)
    api.put_trigger(orjson.dumps({"name": f"t-{name}", "workflow": name, "subject": {"subject": f"t.{name}"}}))
    fired = api.fire_trigger(f"t-{name}").run_id
    other = started(api, name, labels={"of": name})
    ended(api, fired, other)
    await page.goto(f"/console/runs?workflow={name}")
    search = page.get_by_role("searchbox")
    await search.fill(f"of:{name}")
    await search.press("Enter")
    await expect(page).to_have_url(re.compile(f"label=of%3A{name}"))
    await expect(row(page, other)).to_be_visible()
    await expect(row(page, fired)).to_have_count(0)

    await page.goto(f"/console/runs?workflow={name}")
    await row(page, fired).get_by_role("button", name=f"t-{name}").click()
    await expect(page.get_by_role("button", name=f"Without trigger t-{name}")).to_be_visible()
    await expect(row(page, other)).to_have_count(0)
    await expect(page).to_have_url(re.compile(f"trigger=t-{name}"))


async def test_a_drag_over_the_histogram_chooses_a_time(page: Page, api: Client) -> None:
    name = workflow(api)
    ended(api, started(api, name))
    await page.goto(f"/console/runs?workflow={name}")
    bars = page.locator(".over-time-bars")
    await expect(bars.locator(".h-completed")).not_to_have_count(0)
    box = await bars.bounding_box()
    assert box is not None

    await page.mouse.move(box["x"] + 10, box["y"] + 20)
    await page.mouse.down()
    await page.mouse.move(box["x"] + 120, box["y"] + 20, steps=4)
    await page.mouse.up()

    await expect(page).to_have_url(re.compile("after=.*&before="))
    await expect(page.get_by_label("Time")).to_have_value("custom")
    await page.get_by_label("Time").select_option("Last hour")
    await expect(page).to_have_url(re.compile(r"range=1h"))
    assert "after=" not in page.url
    await expect(page.locator(".runs-row[data-run]")).to_have_count(1)


async def test_numbers_that_were_not_all_counted_say_so_and_a_click_counts_all(page: Page, api: Client) -> None:
    name = workflow(api)
    ended(api, *[started(api, name) for _ in range(3)])
    bounds: list[bool] = []

    async def cut(route: Route) -> None:
        headers = {name: value for name, value in route.request.headers.items() if name != "if-none-match"}
        answer = await route.fetch(headers=headers)
        bounds.append("within_ms=60" in route.request.url)
        since = {"complete": False, "since": "2999-06-15T12:00:00Z"} if bounds[-1] else {}
        await route.fulfill(response=answer, json={**await answer.json(), **since})

    await page.route("**/runs/stats?*", cut)
    await page.goto(f"/console/runs?workflow={name}")
    said = page.locator(".over-time-counted")
    await expect(said).to_contain_text("Counted back to 15 Jun 2999")
    completed = page.get_by_role("group", name="Statuses").get_by_role("button", name="completed")
    await expect(completed.locator(".facet-number")).to_have_text("3+")
    await expect(completed).to_have_attribute("title", re.compile("At least so many"))
    await expect(page.locator(".over-time-bars")).to_have_attribute("aria-label", re.compile("^3 or more runs from"))
    await expect(page.locator(".over-time-uncounted")).not_to_have_count(0)
    assert all(bounds)

    await said.get_by_role("button", name="Count all").click()
    await expect(said).to_have_count(0)
    await expect(completed.locator(".facet-number")).to_have_text("3")
    await expect(page.locator(".over-time-uncounted")).to_have_count(0)
    assert not all(bounds)


async def test_new_runs_move_nothing_while_somebody_reads(page: Page, api: Client) -> None:
    name = workflow(api, step("wait", "console.signalled"))
    first = started(api, name)
    await page.goto(f"/console/runs?workflow={name}")
    await row(page, first).hover()
    second = started(api, name)
    button = page.get_by_role("button", name="1 new run")
    await expect(button).to_be_visible()
    await expect(row(page, second)).to_have_count(0)
    await button.click()
    await expect(page.locator(".runs-row[data-run]").first).to_have_attribute("data-run", second)

    await page.mouse.move(5, 5)  # nobody reads: they come by themselves
    await page.evaluate("document.activeElement.blur()")
    third = started(api, name)
    await expect(page.locator(".runs-row[data-run]").first).to_have_attribute("data-run", third)
    api.signal(first, "go", b"1")
    await expect(row(page, first).locator(".status")).to_have_text("completed")


async def test_keys_move_select_and_open(page: Page, api: Client) -> None:
    name = workflow(api)
    older, newer = started(api, name), started(api, name)
    ended(api, older, newer)
    await page.goto(f"/console/runs?workflow={name}")
    await expect(row(page, older)).to_be_visible()

    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(row(page, older)).to_have_class(re.compile("here"))
    await page.keyboard.press("x")
    await expect(page.get_by_role("region", name="Selected runs")).to_contain_text("1 run")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("region", name="Selected runs")).to_have_count(0)
    await page.keyboard.press("k")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(newer))


async def test_selected_runs_are_paused_resumed_and_cancelled(page: Page, api: Client) -> None:
    name = workflow(api, step("wait", "console.signalled"))
    runs = [started(api, name) for _ in range(2)]
    await page.goto(f"/console/runs?workflow={name}")
    bar, dialog = page.get_by_role("region", name="Selected runs"), page.get_by_role("dialog")

    for verb, seen in (("Pause", "paused"), ("Resume", "running"), ("Cancel", "cancelled")):
        await page.get_by_label("Select all runs that are shown").check()
        await bar.get_by_role("button", name=verb).click()
        await dialog.get_by_text("The same by command").click()
        await expect(dialog).to_contain_text(f"penstock run {verb.lower()} {runs[1]} {runs[0]}")
        await dialog.get_by_role("button", name=f"{verb} 2 runs").click()
        await expect(dialog).to_have_count(0)
        for run_id in runs:
            await expect(row(page, run_id).locator(".status")).to_have_text(seen)
    assert {"cancelled"} == {api.get_run(run_id).status for run_id in runs}


async def test_all_that_match_are_counted_before_they_are_cancelled(page: Page, api: Client) -> None:
    name = workflow(api, step("wait", "console.nobody"))
    api.bulk(name, [b"1"] * 120, labels={"team": "payments"})
    other = started(api, name)
    await page.goto(f"/console/runs?workflow={name}&label=team%3Apayments&status=running")
    await page.locator(".c-select").nth(1).click()
    bar, dialog = page.get_by_role("region", name="Selected runs"), page.get_by_role("dialog")
    await bar.get_by_role("button", name=ALL_THAT_MATCH).click()
    await bar.get_by_role("button", name="Cancel").click()

    await expect(dialog).to_contain_text(f"120 runs of {name} would be cancelled")
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text(f"penstock run cancel --workflow {name} --label team=payments")
    assert {"running": 121} == api.run_stats(workflow=name).buckets[0].counts
    await dialog.get_by_role("button", name="Cancel 120 runs").click()
    await expect(dialog).to_have_count(0)

    assert {"running": 1, "cancelled": 120} == api.run_stats(workflow=name).buckets[0].counts
    assert "running" == api.get_run(other).status


async def test_all_of_several_workflows_that_a_text_finds_are_paused(page: Page, api: Client) -> None:
    team, names = f"t{uuid4().hex}", [workflow(api, step("wait", "console.nobody")) for _ in range(2)]
    runs = [api.start(name, b"1", labels={"team": team}).run_id for name in names for _ in range(2)]
    other = started(api, names[0])
    await page.goto(f"/console/runs?q={team}")
    await expect(row(page, runs[0])).to_be_visible()
    await page.locator(".c-select").nth(1).click()
    bar, dialog = page.get_by_role("region", name="Selected runs"), page.get_by_role("dialog")
    await bar.get_by_role("button", name=ALL_THAT_MATCH).click()
    await expect(bar.get_by_role("button", name="Rerun")).to_have_count(0)  # goes with one workflow only
    await bar.get_by_role("button", name="Pause").click()

    await expect(dialog).to_contain_text("4 runs of all workflows would be paused")
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text("penstock run pause")
    await expect(dialog).to_contain_text(f"--q {team}")
    await dialog.get_by_role("button", name="Pause 4 runs").click()
    await expect(dialog).to_have_count(0)

    assert [True] * 4 + [False] == [api.get_run(run_id).paused_at is not None for run_id in (*runs, other)]


async def test_what_is_selected_goes_in_one_request(context: BrowserContext, page: Page, api: Client) -> None:
    name = workflow(api, step("wait", "console.nobody"))
    first, second, third = (started(api, name) for _ in range(3))
    await page.goto(f"/console/runs?workflow={name}")
    for run_id in (first, second):
        await row(page, run_id).locator(".c-select input").click()
    await page.get_by_role("region", name="Selected runs").get_by_role("button", name="Cancel").click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    await page.get_by_role("dialog").get_by_role("button", name="Cancel 2 runs").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)

    assert 1 == len(asked)
    assert ["cancelled", "cancelled", "running"] == [api.get_run(run_id).status for run_id in (first, second, third)]


async def test_a_bulk_is_done_in_parts(context: BrowserContext, page: Page, api: Client) -> None:
    name = workflow(api, step("wait", "console.nobody"))
    for number in (1000, 203):
        api.bulk(name, [b"1"] * number)
    await until_true(lambda: api.run_stats(workflow=name, status="running").total == 1203)
    await page.goto(f"/console/runs?workflow={name}&status=running")
    await page.locator(".c-select").nth(1).click()
    bar, dialog = page.get_by_role("region", name="Selected runs"), page.get_by_role("dialog")
    await bar.get_by_role("button", name=ALL_THAT_MATCH).click()
    await bar.get_by_role("button", name="Pause").click()
    await expect(dialog).to_contain_text("1,000 at a time")
    parts: list[dict[str, Any]] = []
    page.on("request", lambda request: parts.append(request.post_data_json) if request.method == "POST" else None)
    await dialog.get_by_role("button", name="Pause 1,203 runs").click()
    await expect(dialog).to_have_count(0, timeout=30_000)

    assert [False, True] == ["cursor" in part for part in parts]
    await until_true(lambda: api.run_stats(workflow=name, paused=True).total == 1203)


async def test_failed_runs_are_retried_and_rerun(page: Page, api: Client) -> None:
    name = workflow(api, step("publish", "console.broken"))
    failed = started(api, name)
    ended(api, failed)
    await page.goto(f"/console/runs?workflow={name}")
    bar, dialog = page.get_by_role("region", name="Selected runs"), page.get_by_role("dialog")
    await row(page, failed).get_by_role("checkbox").check()
    await bar.get_by_role("button", name="Retry").click()
    await dialog.get_by_role("button", name="Retry 1 run").click()
    await expect(dialog).to_have_count(0)
    await until_true(lambda: any(event.type == "workflow.resumed" for event in api.events(failed)))
    await until_true(lambda: api.get_run(failed).status in RUN_ENDED)

    await expect(row(page, failed).locator(".status")).to_have_text("failed")
    await row(page, failed).get_by_role("checkbox").check()
    await bar.get_by_role("button", name="Rerun").click()
    await dialog.get_by_role("button", name="Rerun 1 run").click()
    await until_true(lambda: any(run.rerun_of == failed for run in api.runs(workflow=name)))


async def test_views_are_kept_by_the_browser(page: Page, api: Client) -> None:
    name = workflow(api)
    ended(api, started(api, name))
    await page.goto(f"/console/runs?workflow={name}")
    await page.get_by_role("button", name="Save this view").click()
    await page.get_by_label("Name of the view").fill(HOSTILE)
    await page.keyboard.press("Enter")
    views = page.get_by_role("group", name="Saved views")
    await views.get_by_role("button", name="Held up").click()
    await expect(page).to_have_url(re.compile(r"runs\?held_up=true$"))
    await page.reload()
    await views.get_by_role("button", name=HOSTILE, exact=True).click()
    await expect(page).to_have_url(re.compile(f"workflow={name}$"))
    await views.get_by_role("button", name=f"Forget the view {HOSTILE}").click()
    await expect(views.get_by_role("button")).to_have_count(4)  # three of everybody, and the one that saves
    await views.get_by_role("button", name="Failed today").click()
    await expect(page).to_have_url(re.compile(r"status=failed&after=\d{4}-"))


async def test_a_run_is_started_with_a_form_of_its_schema(page: Page, api: Client) -> None:
    properties = {
        "customer": {"type": "string", "description": "Who pays."},
        "amount": {"type": "integer", "minimum": 1},
        "currency": {"enum": ["EUR", "USD"], "default": "EUR"},
        "urgent": {"type": "boolean"},
        "lines": {"type": "array"},
    }
    name = workflow(api, input_schema={"type": "object", "properties": properties, "required": ["customer", "amount"]})
    ended(api, started(api, name, {"customer": "Grace", "amount": 1}))
    await page.goto(f"/console/runs?workflow={name}")
    await page.get_by_role("button", name="Start a run").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("customer").fill(HOSTILE)
    await dialog.get_by_label("amount").fill("129")
    await dialog.get_by_label("urgent").check()
    await dialog.get_by_label("lines").fill('["A-17"')
    await dialog.get_by_label("Labels").fill("team:payments\nenv: prod")
    await dialog.get_by_role("button", name="Start", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_have_text("lines: no JSON")
    await dialog.get_by_label("lines").fill('["A-17"]')
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text(f"penstock run start {name} --input")
    await dialog.get_by_role("button", name="Start", exact=True).click()

    await expect(page).to_have_url(re.compile(r"/runs/[0-9a-f]{32}$"))
    run = api.get_run(page.url.rpartition("/")[2])
    assert {"customer": HOSTILE, "amount": 129, "currency": "EUR", "urgent": True, "lines": ["A-17"]} == orjson.loads(
        bytes(run.input)  # type: ignore[arg-type]
    )
    assert {"team": "payments", "env": "prod"} == run.labels


async def test_a_run_is_started_like_a_former_one(page: Page, api: Client) -> None:
    name = workflow(api)
    former = started(api, name, {"order": 17}, labels={"team": "payments"})
    ended(api, former)
    await page.goto("/console/runs")
    await page.get_by_role("button", name="Start a run").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="As a former run").click()
    await dialog.get_by_label("Id of a run").fill(former)
    await dialog.get_by_role("button", name="Take its input").click()
    await expect(dialog.get_by_label("Input, as JSON")).to_have_value(re.compile('"order": 17'))
    await expect(dialog.get_by_label("Workflow")).to_have_value(name)
    await dialog.get_by_role("button", name="Start", exact=True).click()
    await expect(page).to_have_url(re.compile(r"/runs/[0-9a-f]{32}$"))
    run = api.get_run(page.url.rpartition("/")[2])
    assert (name, {"team": "payments"}) == (run.workflow_id, run.labels)


async def test_other_pages_lead_to_the_start_of_a_run(page: Page, api: Client) -> None:
    name = workflow(api)
    former = started(api, name, {"order": 18})
    await page.goto(f"/console/runs?workflow={name}&start={name}")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Workflow")).to_have_value(name)
    await dialog.get_by_role("button", name="Back").click()
    await expect(page).to_have_url(re.compile(f"runs\\?workflow={name}$"))

    await page.goto(f"/console/runs?like={former}")
    await expect(dialog.get_by_label("Input, as JSON")).to_have_value(re.compile('"order": 18'))
    await expect(dialog.get_by_label("Workflow")).to_have_value(name)


async def test_hostile_values_are_text(page: Page, api: Client) -> None:
    name = workflow(api, step("echo", "console.echo"))
    run_id = started(api, name, HOSTILE, labels={"team": HOSTILE})
    await page.goto(f"/console/runs?workflow={name}")
    await expect(row(page, run_id)).to_contain_text("<img src=x onerror=alert(1)>")
    assert 0 == await page.locator(".runs img").count()
    await row(page, run_id).get_by_role("button", name="team").click()
    await expect(page.get_by_role("button", name="Without team:")).to_be_visible()
    await expect(row(page, run_id)).to_be_visible()


async def test_scrolling_reads_more_and_draws_few_rows(context: BrowserContext, page: Page, api: Client) -> None:
    name = workflow(api, step("wait", "console.nobody"))
    api.bulk(name, [b"1"] * 450)
    sizes: list[int] = []

    async def measure(answer: Any) -> None:
        if "/runs/summaries" in answer.url and answer.status == 200:
            sizes.append(len(await answer.body()))

    page.on("response", measure)
    await page.goto(f"/console/runs?workflow={name}")
    await expect(page.locator(".runs-row[data-run]").first).to_be_visible()
    foot = page.locator(".runs-foot")
    while await foot.inner_text() != "450 runs":
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert await page.locator(".runs-row[data-run]").count() <= 100
    await page.evaluate("scrollTo(0, document.body.scrollHeight)")
    await expect(page.locator('.runs-row[aria-rowindex="451"]')).to_be_visible()
    assert max(sizes) < 256 * 1024


async def test_a_service_without_runs_says_what_to_type(page: Page) -> None:
    for path in ("**/runs/summaries?*", "**/workflows?*"):
        await page.route(path, lambda route: route.fulfill(json=[]))
    await page.route("**/runs/stats*", lambda route: route.fulfill(json={"total": 0, "buckets": []}))
    await page.goto("/console")
    await expect(page.get_by_role("heading", name="No run yet")).to_be_visible()
    await expect(page.get_by_role("button", name="penstock demo")).to_be_visible()
    await expect(page.get_by_role("button", name="/workflows -d")).to_be_visible()


async def test_what_has_not_changed_is_not_sent_again(context: BrowserContext, page: Page, api: Client) -> None:
    name = workflow(api)
    run_id = started(api, name)
    ended(api, run_id)
    asked: list[tuple[str, str, str]] = []

    def note(answer: Any) -> None:
        if "/runs/summaries" in answer.url:
            given = answer.request.headers
            asked.append((answer.url, given.get("cache-control", ""), given.get("if-none-match", "")))

    page.on("response", note)
    await page.goto(f"/console/runs?workflow={name}")
    await expect(row(page, run_id)).to_be_visible()
    async with page.expect_response(lambda answer: "/runs/summaries" in answer.url and answer.status == 304):
        pass
    assert ("", "") == asked[0][1:]
    assert all(age == "max-age=1" and tag for _, age, tag in asked[1:])
    assert not any("explain" in url for url, _, _ in asked)  # no run is open, so there is nothing to explain

    other = started(api, name)
    await expect(row(page, other)).to_be_visible()


async def test_reasons_are_asked_for_while_runs_stand(page: Page, api: Client) -> None:
    name = workflow(api, step("wait", "console.nobody"))
    run_id = started(api, name)
    await page.goto(f"/console/runs?workflow={name}")
    await expect(row(page, run_id)).to_contain_text("none serves task")
