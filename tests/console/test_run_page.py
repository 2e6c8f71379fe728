"""The page of one run: its steps as graph and waterfall, why it does not go on, what can be done."""

from __future__ import annotations

import re
from socket import gethostname
from uuid import uuid4

import orjson
import pytest
from playwright.async_api import BrowserContext, Page, expect

from penstock.client import Client
from tests.console.conftest import step

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("worker")]

FLAKY = {"max_attempts": 3, "strategy": "fixed", "initial_delay": "50ms"}


def started(api: Client, *steps: dict[str, object], wait: bool = True, **more: object) -> str:
    """The id of a run of a workflow with these steps; with `wait`, one that has ended."""
    name = f"page-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": list(steps), **more}))
    run_id = api.start(name, b'{"pull": 17}').run_id
    if wait:
        assert list(api.follow(run_id))  # until it has ended
    return run_id


async def test_failed_run_shows_its_error_its_attempts_and_the_step_that_failed(page: Page, api: Client) -> None:
    run_id = started(
        api,
        step("fetch", "console.echo"),
        step("test", "console.flaky", "fetch", retry=FLAKY),
        step("publish", "console.broken", "test"),
        step("announce", "console.echo", "publish"),
    )
    await page.goto(f"/console/runs/{run_id}")

    await expect(page.get_by_role("alert")).to_contain_text("403 forbidden: the registry has refused")
    rows = page.locator(".row")
    await expect(rows).to_have_count(4)
    assert ["fetch", "test", "publish", "announce"] == [
        await rows.nth(number).get_attribute("data-step") for number in range(4)
    ]
    tried = page.locator('.row[data-step="test"]')
    await expect(tried.locator(".o-failed")).to_have_count(2)
    await expect(tried.locator(".o-completed")).to_have_count(1)
    await expect(tried.locator(".b-retry")).to_have_count(2)
    await expect(tried.get_by_text("\u00d73")).to_be_visible()
    await expect(page.locator('.row[data-step="announce"] .bar')).to_have_count(0)

    await page.get_by_role("alert").get_by_role("button", name="publish").click()
    panel = page.get_by_role("complementary", name="Step publish")
    await expect(panel.locator(".error-text")).to_have_text("403 forbidden: the registry has refused")
    await expect(panel.locator(".value", has_text="Input")).to_contain_text("third time lucky")
    await expect(page).to_have_url(re.compile(r"\?step=publish$"))
    await page.keyboard.press("Escape")
    await expect(panel).to_have_count(0)


async def test_run_goes_on_before_the_eyes_of_whoever_looks(page: Page, api: Client) -> None:
    run_id = started(api, step("wait", "console.signalled"), step("after", "console.echo", "wait"), wait=False)
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator('.row[data-step="wait"] .o-running')).to_have_count(1)
    await expect(page.locator(".run-head .status").first).to_have_text("running")

    api.signal(run_id, "go", b'{"by": "test"}')
    await expect(page.locator(".run-head .status").first).to_have_text("completed")
    await expect(page.locator('.row[data-step="after"] .o-completed')).to_have_count(1)
    await expect(page.locator(".event", has_text="workflow.completed")).to_be_visible()


async def test_run_that_nobody_serves_says_so(page: Page, api: Client) -> None:
    run_id = started(api, step("train", "console.nobody"), wait=False)
    await page.goto(f"/console/runs/{run_id}")
    banner = page.locator(".banner.act")
    await expect(banner).to_contain_text('none serves task "console.nobody" now')
    await expect(page.locator(".run-head").get_by_text("held up")).to_be_visible()
    await banner.get_by_role("button", name="show the step").click()
    await expect(page.get_by_role("complementary", name="Step train")).to_be_visible()
    await banner.get_by_role("link", name="who serves it").click()
    await expect(page).to_have_url(re.compile(r"/workers\?q=console\.nobody$"))
    await expect(page.get_by_role("row", name="console.nobody")).to_contain_text("nobody serves it")


async def test_a_run_that_only_sleeps_wants_nobody(page: Page, api: Client) -> None:
    run_id = started(api, {"id": "rest", "type": "sleep", "config": {"duration": "1h"}}, wait=False)
    await page.goto(f"/console/runs/{run_id}")
    banner = page.locator(".banner.calm")
    await expect(banner).to_contain_text(re.compile(r'Step "rest" sleeps until (\d\d \w+, )?\d\d:\d\d:\d\d'))
    await expect(page.locator(".run-head").get_by_text("held up")).to_have_count(0)
    api.cancel(run_id)


async def test_the_step_says_what_it_has_kept_and_where_it_runs(page: Page, api: Client) -> None:
    run_id = started(api, step("import", "console.keeps"), wait=False)
    await page.goto(f"/console/runs/{run_id}?step=import")
    panel = page.get_by_role("complementary", name="Step import")
    kept = panel.locator(".value", has_text="Checkpoint")
    await expect(kept).to_contain_text("page7")
    await expect(panel.get_by_text(re.compile(r"kept \d+ s ago, for the next attempt"))).to_be_visible()
    await expect(panel.locator(".panel-fact", has_text="Worker")).to_contain_text(f"on {gethostname()}")
    await expect(panel.locator(".panel-fact", has_text="Progress")).to_contain_text("3 of 10")
    api.signal(run_id, "go", b"1")
    await expect(page.locator(".run-head .status").first).to_have_text("completed")
    await expect(kept).to_have_count(0)


async def test_children_are_listed(page: Page, api: Client) -> None:
    child = f"page-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": child, "steps": [step("a", "console.echo")]}))
    run_id = started(api, {"id": "call", "type": "sub_workflow", "config": {"workflow": child}})
    await page.goto(f"/console/runs/{run_id}")
    await page.locator(".run-head").get_by_role("link", name="1 step's").click()
    await expect(page.get_by_role("button", name=f"Without children of {run_id[:8]}")).to_be_visible()
    await expect(page.locator(".runs-row[data-run]")).to_have_count(1)
    await page.locator(".runs-row[data-run] a").click()
    await page.locator(".run-head .fact", has_text="Parent").get_by_role("link").click()
    await expect(page).to_have_url(re.compile(rf"/runs/{run_id}\?step=call$"))


async def test_a_signal_is_sent_to_the_run(page: Page, api: Client) -> None:
    run_id = started(api, step("wait", "console.signalled"), wait=False)
    await page.goto(f"/console/runs/{run_id}")
    await page.get_by_role("button", name="Signal…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("go")
    await dialog.get_by_label("Body").fill('{"by": "hand"}')
    await dialog.get_by_text("The same by command").click()
    await expect(dialog).to_contain_text(f'penstock run signal {run_id} go --input \'{{"by": "hand"}}\'')
    await dialog.get_by_role("button", name="Signal", exact=True).click()
    await expect(page.locator(".run-head .status").first).to_have_text("completed")
    assert b'{"by":"hand"}' == api.output(run_id, "wait").replace(b" ", b"")


async def test_rows_and_lines_mark_each_other_and_the_error_is_tied_to_its_row(page: Page, api: Client) -> None:
    run_id = started(api, step("a", "console.echo"), step("b", "console.echo", "a"), step("c", "console.broken", "b"))
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator(".row")).to_have_count(3)
    await expect(page.locator(".line.marked")).to_have_count(0)
    await page.locator('.row[data-step="b"] .row-bars').hover()
    await expect(page.locator('.row[data-step="b"]')).to_have_class(re.compile("marked"))
    await expect(page.locator(".line.marked")).not_to_have_count(0)
    await expect(page.locator(".line.critical")).not_to_have_count(0)
    tie, row = await page.locator(".tie").bounding_box(), await page.locator('.row[data-step="c"]').bounding_box()
    assert tie is not None
    assert row is not None
    assert row["y"] < tie["y"] + tie["height"] < row["y"] + row["height"]


async def test_ids_are_copied_by_a_click(context: BrowserContext, page: Page, api: Client) -> None:
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    run_id = started(api, step("a", "console.echo"))
    await page.goto(f"/console/runs/{run_id}")
    await page.locator(".run-head .copy").click()
    assert run_id == await page.evaluate("navigator.clipboard.readText()")


async def test_paused_cancelled_and_rerun_with_the_commands_that_do_the_same(page: Page, api: Client) -> None:
    run_id = started(api, step("wait", "console.signalled"), wait=False)
    await page.goto(f"/console/runs/{run_id}")
    await page.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("The same by command").click()
    await expect(dialog.get_by_text(f"penstock run pause {run_id}")).to_be_visible()
    await dialog.get_by_role("button", name="Pause", exact=True).click()
    await expect(dialog).to_have_count(0)
    await expect(page.locator(".run-head").get_by_text("paused")).to_be_visible()
    assert api.get_run(run_id).paused_at is not None

    await page.get_by_role("button", name="Cancel…").click()
    await dialog.get_by_label("Reason").fill("no longer wanted")
    await dialog.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator(".run-head").get_by_text("cancelled")).to_be_visible()
    assert "cancelled" == api.get_run(run_id).status

    await page.get_by_role("button", name="Rerun…").click()
    await dialog.get_by_role("button", name="Rerun", exact=True).click()
    await expect(page.get_by_text("Rerun of")).to_be_visible()
    [again] = api.runs(workflow=api.get_run(run_id).workflow_id, status="running")
    assert run_id == again.rerun_of
    api.cancel(again.run_id)


async def test_map_shows_its_elements_as_one_row(page: Page, api: Client) -> None:
    run_id = started(
        api,
        step("list", "console.list"),
        step("each", "console.element", "list", type="map", config={"on_item_failure": "continue"}),
    )
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator('.row[data-step="each"]').get_by_text("37/40 · 3 failed")).to_be_visible()
    await expect(page.get_by_role("img", name="40 of 40 elements ended, 3 failed")).to_be_visible()
    banner = page.locator(".elements-failed")
    await expect(banner).to_contain_text("3 of 40 elements of each failed, first: element 3 is broken")
    await banner.get_by_role("button", name="each").click()
    elements = page.get_by_role("complementary", name="Step each").locator(".elements li")
    await expect(elements).to_have_count(3)
    await expect(elements.nth(2)).to_contain_text("element 29 is broken")
    await page.goto(f"/console/runs?workflow={api.get_run(run_id).workflow_id}")
    await expect(page.locator(f'.runs-row[data-run="{run_id}"]')).to_contain_text("3 elements of a map failed")


async def test_time_slider_shows_the_run_as_it_was(page: Page, api: Client) -> None:
    run_id = started(api, step("a", "console.signalled"), step("b", "console.echo", "a"), wait=False)
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator(".event", has_text="step.started")).to_have_count(1)  # a quick step has no such event
    api.signal(run_id, "go", b"1")
    await expect(page.locator(".run-head .status").first).to_have_text("completed")
    begun = page.locator(".event", has_text="step.started").first
    await begun.locator(".event-seq").click()
    await expect(page.get_by_text("as it was at event")).to_be_visible()
    await expect(page.locator(".run-head .status").first).to_have_text("running")
    await expect(page.locator('.row[data-step="b"] .bar')).to_have_count(0)
    await page.get_by_role("button", name="back to now").click()
    await expect(page.locator(".run-head .status").first).to_have_text("completed")


async def test_a_quick_step_shows_when_it_began_and_how_long_it_took(page: Page, api: Client) -> None:
    run_id = started(api, step("a", "console.echo"))
    [answer] = [event for event in api.events(run_id) if event.type == "step.completed"]
    assert isinstance(answer.started_at, str)  # it says itself when its execution began
    await page.goto(f"/console/runs/{run_id}?step=a")
    await expect(page.locator(".event", has_text="step.completed")).to_contain_text(re.compile(r"began \+\d.*s"))
    await expect(page.locator(".event", has_text="step.started")).to_have_count(0)
    [bar] = await page.locator('.row[data-step="a"] .o-completed').all()
    took = re.compile(rf"attempt 1: completed [\d.]+ .?s, worker {answer.worker_id}")
    await expect(bar).to_have_attribute("title", took)
    executions = page.get_by_role("complementary", name="Step a").locator("table.attempts tbody tr")
    await expect(executions).to_have_count(1)
    queued, ran = [await executions.locator("td").nth(column).inner_text() for column in (1, 2)]
    assert None not in (re.fullmatch(r"[\d.]+ .?s", queued), re.fullmatch(r"[\d.]+ .?s", ran))


async def test_failed_run_goes_on_after_a_retry(page: Page, api: Client) -> None:
    run_id = started(api, step("broken", "console.broken"))
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator(".run-head .status").first).to_have_text("failed")
    await page.get_by_role("button", name="Retry").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator('.row[data-step="broken"] .o-failed')).to_have_count(2)
    await expect(page.locator(".event", has_text="workflow.resumed")).to_be_visible()
    await expect(page.locator(".run-head .status").first).to_have_text("failed")


async def test_step_is_completed_by_hand(page: Page, api: Client) -> None:
    run_id = started(api, step("stuck", "console.nobody"), step("after", "console.echo", "stuck"), wait=False)
    await page.goto(f"/console/runs/{run_id}?step=stuck")
    await page.get_by_role("button", name="Complete by hand…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Output, as JSON").fill("{not JSON")
    await dialog.get_by_role("button", name="Complete", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await dialog.get_by_label("Output, as JSON").fill('{"boxes": 2}')
    await dialog.get_by_role("button", name="Complete", exact=True).click()
    await expect(page.locator(".run-head .status").first).to_have_text("completed")
    await expect(page.locator('.row[data-step="stuck"]').get_by_text("by hand")).to_be_visible()
    assert b'{"boxes":2}' == api.output(run_id, "after").replace(b" ", b"")


async def test_approval_is_decided_with_a_comment(page: Page, api: Client) -> None:
    run_id = started(api, {"id": "consent", "type": "approval"}, step("after", "console.echo", "consent"), wait=False)
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.get_by_role("status")).to_contain_text("waits for a person's decision")
    await page.get_by_role("button", name="Approve…").click()
    await page.get_by_label("Comment").fill("looks good")
    await page.get_by_role("dialog").get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator(".run-head .status").first).to_have_text("completed")
    [granted] = [event for event in api.events(run_id) if event.type == "approval.granted"]
    assert "looks good" in bytes(granted.payload).decode()  # type: ignore[arg-type]


async def test_log_lines_and_streamed_text_come_live(page: Page, api: Client) -> None:
    run_id = started(api, step("wait", "console.signalled"), wait=False)
    await page.goto(f"/console/runs/{run_id}?step=wait")
    await expect(page.get_by_role("log", name="Log lines")).to_contain_text("waits for go")
    await expect(page.get_by_role("log", name="Streamed text")).to_contain_text("tick")
    api.signal(run_id, "go", b"1")
    await expect(page.get_by_role("log", name="Streamed text")).to_contain_text("tick done")


async def test_the_steps_of_a_plan_stand_in_a_frame(page: Page, api: Client) -> None:
    made = {"steps": [step("read", "console.echo"), step("sum", "console.echo", "read")]}
    steps = [
        {"id": "plan", "type": "planner", "task": "console.echo", "with": made},
        step("report", "console.echo", "plan"),
    ]
    run_id = started(api, *steps)
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator(".row")).to_have_count(4)
    planned = page.locator(".row.planned")
    await expect(planned).to_have_count(2)
    await expect(planned.first).to_have_class(re.compile(r"\bfirst\b"))
    await expect(planned.first).to_contain_text("read")
    await expect(planned.last).to_have_class(re.compile(r"\blast\b"))
    await expect(planned.last).to_contain_text("sum")


async def test_another_run_is_compared(page: Page, api: Client) -> None:
    name = f"compared-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("a", "console.echo"), step("b", "console.echo", "a")]}))
    first, second = (api.start(name, value).run_id for value in (b'"one"', b'"two"'))
    for run_id in (first, second):
        assert list(api.follow(run_id))
    await page.goto(f"/console/runs/{second}")
    await page.get_by_role("button", name="Compare").click()
    table = page.get_by_role("region", name="Comparison")
    await expect(table.get_by_role("row", name="the run")).to_contain_text("input: one")
    await expect(page.locator(".row").get_by_text("differs")).to_have_count(2)
    await page.get_by_role("button", name="End comparison").click()
    await expect(page.locator(".row").get_by_text("differs")).to_have_count(0)


async def test_zoom_by_a_brush_and_back(page: Page, api: Client) -> None:
    run_id = started(api, step("a", "console.echo"), step("b", "console.echo", "a"))
    await page.goto(f"/console/runs/{run_id}")
    axis = page.locator(".axis-ticks")
    box = await axis.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 20, box["y"] + 8)
    await page.mouse.down()
    await page.mouse.move(box["x"] + 120, box["y"] + 8)
    await page.mouse.up()
    await page.get_by_role("button", name="whole run").click()
    await expect(page.get_by_role("button", name="whole run")).to_have_count(0)


async def test_idle_time_is_folded_on_demand(page: Page, api: Client) -> None:
    run_id = started(api, step("wait", "console.signalled"), wait=False)
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator(".row")).to_have_count(1)
    await expect(page.get_by_role("button", name="fold idle")).to_have_count(0)  # there is nothing to fold
    api.cancel(run_id)
    asks = started(api, step("a", "console.echo"), {"id": "ask", "type": "approval", "depends_on": ["a"]}, wait=False)
    await page.goto(f"/console/runs/{asks}")
    await page.get_by_role("button", name="fold idle").click()
    await expect(page.locator(".backdrop .fold")).to_have_count(1)
    await page.get_by_role("button", name="fold idle").click()
    await expect(page.locator(".backdrop .fold")).to_have_count(0)
    api.cancel(asks)


async def test_the_last_frame_of_a_traceback_is_seen_and_the_others_on_demand(page: Page, api: Client) -> None:
    run_id = started(api, step("deep", "console.deep"))
    await page.goto(f"/console/runs/{run_id}?step=deep")
    error = page.get_by_role("complementary", name="Step deep").locator(".panel-error")
    await expect(error.locator(".error-text")).to_have_text("ValueError: too deep")
    await expect(error.locator(":scope > .traceback")).to_contain_text("in deeper")
    before = error.locator("details .traceback")
    await expect(before).to_be_hidden()
    await error.get_by_text("frame").first.click()
    await expect(before).to_contain_text("in deep")


async def test_a_run_is_exported_as_one_document(page: Page, api: Client) -> None:
    run_id = started(api, step("a", "console.echo"))
    await page.goto(f"/console/runs/{run_id}")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export").click()
    found = orjson.loads((await (await download.value).path()).read_bytes())
    assert run_id == found["run_id"]
    assert len(api.events(run_id)) == len(found["events"])


async def test_event_is_shown_whole_though_it_is_large(page: Page, api: Client) -> None:
    name = f"large-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": name, "steps": [step("a", "console.echo")]}))
    run_id = api.start(name, orjson.dumps({"text": "x" * 5000 + "end of it"})).run_id
    assert list(api.follow(run_id))
    await page.goto(f"/console/runs/{run_id}")
    first = page.locator(".event", has_text="workflow.started")
    await expect(first).to_contain_text("KiB")
    await first.get_by_role("button", name="Show event").click()
    await page.get_by_role("dialog").get_by_role("button", name="KiB").click()
    await expect(page.get_by_role("dialog")).to_contain_text("end of it")


async def test_keys_go_through_the_steps(page: Page, api: Client) -> None:
    run_id = started(api, step("a", "console.echo"), step("b", "console.echo", "a"))
    await page.goto(f"/console/runs/{run_id}")
    await expect(page.locator(".row")).to_have_count(2)
    for key, chosen in (("j", "a"), ("j", "b"), ("k", "a")):
        await page.keyboard.press(key)
        await expect(page.get_by_role("complementary", name=f"Step {chosen}")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("complementary")).to_have_count(0)
    await page.get_by_role("searchbox", name="Filter events").fill("jk")
    await expect(page.get_by_role("complementary")).to_have_count(0)
    await expect(page.get_by_text("No event matches.")).to_be_visible()
