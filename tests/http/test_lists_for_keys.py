"""Lists and numbers of runs for a key that is for some workflows only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from falcon.testing import ASGIConductor

from penstock.broker.store import Store
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP
from tests.http.test_keys import ask, created

pytestmark = pytest.mark.usefixtures("index")


@pytest.fixture(autouse=True)
async def no_keys(store: Store) -> AsyncIterator[None]:
    await store.api_keys.change(lambda _: [])
    yield
    await store.api_keys.change(lambda _: [])


async def test_a_key_for_some_workflows_sees_their_runs_alone(http: ASGIConductor, store: Store) -> None:
    own: list[str] = []
    for name in ("mine.a", "mine.b", "yours"):
        await store.definitions.register(parse({**ONE_STEP, "name": name}))
        answer = await ask(http, "POST", "/runs", {"workflow": name, "labels": {"of": "keys"}})
        own += [answer.json["run_id"]] if name != "yours" else []
    admin = await created(http, "root", "admin")
    key = await created(http, "reader", "read", admin, workflow="mine.*")
    one = await created(http, "one", "read", admin, workflow="yours")
    none = await created(http, "none", "read", admin, workflow="nothing.*")
    for query in ("", "label=of:keys", "status=running", "q=keys", "q=keys&label=of:keys"):
        found = (await ask(http, "GET", f"/runs?{query}", key=key)).json
        assert own[::-1] == [run["run_id"] for run in found]
        assert 2 == (await ask(http, "GET", f"/runs/stats?{query}", key=key)).json["total"]
        assert {"yours"} == {run["workflow_id"] for run in (await ask(http, "GET", f"/runs?{query}", key=one)).json}
        short = (await ask(http, "GET", f"/runs/summaries?{query}&explain=true", key=key)).json
        assert own[::-1] == [run["run_id"] for run in short]
        assert [] == (await ask(http, "GET", f"/runs?{query}", key=none)).json
        assert 0 == (await ask(http, "GET", f"/runs/stats?{query}", key=none)).json["total"]
        assert 3 <= (await ask(http, "GET", f"/runs/stats?{query}", key=admin)).json["total"]
    assert [] == (await ask(http, "GET", "/runs?workflow=yours", key=key)).json
    assert 0 == (await ask(http, "GET", "/runs/stats?workflow=yours&bucket=1h", key=key)).json["total"]
