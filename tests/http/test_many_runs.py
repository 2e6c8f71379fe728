"""What is done with many runs in one request: by their labels, and also when their workflow is gone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.broker.store import Store
from penstock.engine.run.events import WorkflowFailed
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP

pytestmark = pytest.mark.usefixtures("index")

FAILED = ({"verb": "retry", "mode": "replay"}, {"verb": "rerun"})
VERBS = ({"verb": "pause"}, {"verb": "resume"}, {"verb": "cancel"}, *FAILED, {"verb": "retry", "mode": "rerun"})
LISTS = {"pause": "paused", "resume": "resumed", "cancel": "cancelled", "retry": "retried", "rerun": "rerun"}


@pytest.mark.parametrize("wish", VERBS, ids=str)
async def test_only_runs_with_all_of_the_labels(http: ASGIConductor, store: Store, wish: dict[str, str]) -> None:
    name = await workflow(store, "labelled", wish)
    wanted = await ready(http, store, name, wish, {"team": "a", "env": "prod"})
    await ready(http, store, name, wish, {"team": "a"})
    await ready(http, store, name, wish, {})
    found = await asked(http, wish, workflow_id=name, labels={"team": "a", "env": "prod"})
    assert ([wanted], 1) == (done(found, wish), found["total"])


@pytest.mark.parametrize("wish", VERBS[:-1], ids=str)
async def test_the_runs_of_a_workflow_that_was_deleted_by_force(
    http: ASGIConductor, store: Store, wish: dict[str, str]
) -> None:
    """They keep their definition, so all that needs no newer one can be done with them."""
    name = await workflow(store, "deleted", wish)
    run_id = await ready(http, store, name, wish, {})
    assert 200 == (await http.simulate_delete(f"/workflows/{name}?force=true")).status_code
    assert [run_id] == done(await asked(http, wish, workflow_id=name), wish)


async def test_a_newer_definition_is_needed_where_it_is_asked_for(http: ASGIConductor, store: Store) -> None:
    wish = {"verb": "rerun"}
    name = await workflow(store, "renewed", wish)
    await ready(http, store, name, wish, {})
    assert 200 == (await http.simulate_delete(f"/workflows/{name}?force=true")).status_code
    for verb, body in (("rerun", {"latest": True}), ("retry", {"mode": "rerun"})):
        answer = await http.simulate_post(f"/runs/{verb}", body=orjson.dumps({"workflow_id": name, **body}))
        assert (400, f'workflow "{name}" is not registered\n') == (answer.status_code, answer.text)


async def workflow(store: Store, kind: str, wish: dict[str, str]) -> str:
    """A workflow of this test alone."""
    name = "-".join((kind, *wish.values()))
    await store.definitions.register(parse({**ONE_STEP, "name": name}))
    return name


async def ready(http: ASGIConductor, store: Store, name: str, wish: dict[str, str], labels: dict[str, str]) -> str:
    """A run with which it can be done."""
    body = {"workflow": name, **({"labels": labels} if labels else {})}
    run_id = str((await http.simulate_post("/runs", body=orjson.dumps(body))).json["run_id"])
    if wish["verb"] == "resume":
        assert 200 == (await http.simulate_post(f"/runs/{run_id}/pause")).status_code
    elif wish["verb"] in ("retry", "rerun"):
        await store.history.append(WorkflowFailed(run_id=run_id, timestamp="2026-01-01T00:00:00Z"))
    return run_id


async def asked(http: ASGIConductor, wish: dict[str, str], **body: Any) -> dict[str, Any]:
    given = {name: value for name, value in wish.items() if name != "verb"} | body
    answer = await http.simulate_post(f"/runs/{wish['verb']}", body=orjson.dumps(given))
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json
    return found


def done(found: dict[str, Any], wish: dict[str, str]) -> list[str]:
    """The runs with which it was done."""
    return [one if isinstance(one, str) else one["original_run_id"] for one in found[LISTS[wish["verb"]]]]
