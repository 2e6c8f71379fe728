"""The pages of triggers: what each listens to, and all that can be done with one."""

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


def made(api: Client, **source: object) -> str:
    """The name of a new trigger, whose workflow is of-<name>."""
    name = f"trigger-{uuid4().hex[:8]}"
    api.register(orjson.dumps({"name": f"of-{name}", "steps": [step("a", "console.echo")]}))
    api.put_trigger(orjson.dumps({"name": name, "workflow": f"of-{name}", **source}))
    return name


async def test_list_shows_what_each_listens_to_and_when_it_fires(page: Page, api: Client) -> None:
    yearly = made(api, cron={"expression": "0 3 1 1 *", "timezone": "Europe/Berlin"})
    paid = made(api, event={"subject": "event.order.paid", "field": "country", "value": "NL"}, enabled=False)
    await page.goto("/console/triggers")
    row = page.get_by_role("row").filter(has_text=yearly).first
    await expect(row).to_contain_text("0 3 1 1 * Europe/Berlin")
    await expect(row.get_by_role("cell").last).to_have_text(re.compile(r"^in \d+d"))
    await expect(page.get_by_role("row").filter(has_text=paid)).to_contain_text('event.order.paid · country = "NL"')
    await expect(page.get_by_role("row").filter(has_text=paid)).to_contain_text("disabled")

    assert list(api.follow(api.fire_trigger(yearly).run_id))
    await expect(row.get_by_role("cell").nth(6)).to_contain_text("ago", timeout=20_000)
    await expect(row.get_by_role("img", name=f"{yearly}: 1 run in 24 hours")).to_be_visible()
    await page.get_by_label("Find triggers by name or workflow").fill("no such trigger")
    await expect(page.get_by_text("No trigger has such a name or workflow.")).to_be_visible()


async def test_trigger_is_fired_disabled_and_enabled(page: Page, api: Client) -> None:
    name = made(api, event={"subject": f"event.{uuid4().hex}"})
    await page.goto(f"/console/triggers/{name}")
    await expect(page.get_by_text("No run yet.")).to_be_visible()
    await page.get_by_role("button", name="Fire now…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill('{"by": "hand"}')
    await dialog.get_by_text("The same by command").click()
    await expect(dialog.get_by_text(f"penstock trigger fire {name} --input")).to_be_visible()
    await dialog.get_by_role("button", name="Fire", exact=True).click()
    await expect(page.get_by_role("region", name="Runs", exact=True).get_by_text("completed")).to_be_visible()
    [run] = api.runs(trigger=name)
    assert b'{"by": "hand"}' == bytes(run.input)  # type: ignore[arg-type]

    await page.get_by_role("button", name="Disable…").click()
    await dialog.get_by_role("button", name="Disable", exact=True).click()
    await expect(page.get_by_text("disabled", exact=True)).to_be_visible()
    assert not api.trigger(name).enabled
    await page.get_by_role("button", name="Enable…").click()
    await dialog.get_by_role("button", name="Enable", exact=True).click()
    await expect(page.get_by_text("disabled", exact=True)).to_have_count(0)
    assert api.trigger(name).enabled


async def test_document_is_changed_and_its_problems_stand_at_the_field(page: Page, api: Client) -> None:
    name = made(api, cron={"expression": "0 3 1 1 *"})
    await page.goto(f"/console/triggers/{name}")
    await page.get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label("Document")
    text = await field.input_value()
    await field.fill(text.replace("0 3 1 1 *", "soon"))
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("listitem").first).to_contain_text("soon")
    await expect(field).to_have_attribute("aria-invalid", "true")
    await expect(field).to_be_focused()
    await field.fill(text.replace("0 3 1 1 *", "0 4 1 1 *"))
    await expect(dialog.get_by_role("listitem")).to_have_count(0)
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".one-facts").get_by_text("0 4 1 1 *")).to_be_visible()
    found = api.trigger(name).cron
    assert found is not None
    assert "0 4 1 1 *" == found.expression


async def test_trigger_is_created_and_deleted(page: Page, api: Client) -> None:
    workflow = f"of-{made(api, subject={'subject': f'a.{uuid4().hex}'})}"
    name = f"new-{uuid4().hex[:8]}"
    await page.goto("/console/triggers")
    await page.get_by_role("button", name="Create…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Kind").select_option("webhook")
    await expect(dialog.get_by_label("Document")).to_have_value(re.compile("webhook"))
    await dialog.get_by_label("Document").fill(
        orjson.dumps({"name": name, "workflow": workflow, "webhook": {"secret": "tell-nobody"}}).decode()
    )
    await dialog.get_by_role("button", name="Create", exact=True).click()
    await expect(page.get_by_role("heading", name=name)).to_be_visible()
    assert api.trigger(name).webhook is not None

    await page.get_by_role("button", name="Delete…").click()
    await dialog.get_by_role("button", name="Delete", exact=True).click()
    await expect(page).to_have_url(re.compile("/console/triggers$"))
    with pytest.raises(NotFound):
        api.trigger(name)


async def test_webhook_is_tried_and_its_secret_is_nowhere(page: Page, api: Client) -> None:
    name = made(api, webhook={"secret": "tell-nobody"}, labels={"size": "${{ event.size }}"})
    await page.goto(f"/console/triggers/{name}")
    await page.get_by_label("Body that comes").fill('{"size": "large"}')
    await page.get_by_role("button", name="Try it").click()
    await expect(page.get_by_text(f"would start of-{name}@1")).to_be_visible()
    await expect(page.get_by_text("size:large")).to_be_visible()
    await expect(page.get_by_text("openssl dgst -sha256 -hmac")).to_contain_text('{"size": "large"}')
    assert "tell-nobody" not in await page.content()
    await page.get_by_role("button", name="Edit…").click()
    await expect(page.get_by_role("dialog").get_by_label("Document")).to_have_value(re.compile('"secret": true'))
    assert [] == list(api.runs(trigger=name))


async def test_event_is_tried_with_a_body_that_its_filter_lets_through(page: Page, api: Client) -> None:
    name = made(api, event={"subject": f"event.{uuid4().hex}", "field": "order.country", "value": "NL"})
    await page.goto(f"/console/triggers/{name}")
    await page.get_by_role("button", name="Try it").click()
    await expect(page.get_by_text("would start of-")).to_be_visible()
    await page.get_by_label("Body that comes").fill('{"order": {"country": "<b>DE</b>"}}')
    await page.get_by_role("button", name="Try it").click()
    await expect(page.get_by_text("the filter does not let it through")).to_be_visible()


async def test_cron_shows_its_next_instants(page: Page, api: Client) -> None:
    name = made(api, cron={"expression": "0 3 1 1 *"})
    await page.goto(f"/console/triggers/{name}")
    await expect(page.locator(".instants li")).to_have_count(5)
    await expect(page.locator(".instants li").first).to_contain_text("01 Jan")


async def test_events_that_wait_for_their_run_are_shown(page: Page, api: Client) -> None:
    event = uuid4().hex
    name = made(api, event={"subject": f"event.{event}"}, batch={"size": 3, "period": "1h"})
    await page.goto(f"/console/triggers/{name}")
    numbers = page.locator(".one-numbers")
    await expect(numbers).to_contain_text("Last firing")
    await expect(numbers).not_to_contain_text("Events waiting")
    for n in range(2):
        api.send_event(event, b"%d" % n)
    await expect(numbers).to_contain_text(re.compile("Events waiting.*2 in 1 batch"))
    await expect(numbers).to_contain_text(re.compile(r"Next run.*in \d+m"))
    await page.get_by_role("button", name="Edit…").click()
    await expect(page.get_by_role("dialog").get_by_label("Document")).not_to_have_value(re.compile("open_batches"))
    api.send_event(event, b"2")
    await expect(numbers).not_to_contain_text("Events waiting")
    (run,) = api.runs(trigger=name)
    assert [0, 1, 2] == orjson.loads(bytes(api.get_run(run.run_id).input))
