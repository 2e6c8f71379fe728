from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from falcon.testing import ASGIConductor

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.http.app import create_app
from tests.support.conductor import Conductor


@pytest.fixture
async def guarded(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    settings = Settings(broker=broker_settings, http=HttpSettings(api_token="s3cret"))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


@pytest.mark.parametrize(
    "header",
    [None, "", "s3cret", "Bearer", "Bearer ", "Bearer S3CRET", "Bearer s3cret2", "Basic s3cret", "Bearer \xfc"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/runs"), ("POST", "/runs"), ("GET", "/workflows"), ("GET", "/nowhere"), ("POST", "/health/")],
)
async def test_without_the_token_the_control_plane_is_closed(
    guarded: ASGIConductor, store: Store, method: str, path: str, header: str | None
) -> None:
    before = await store.history.last_seq()
    headers = {} if header is None else {"Authorization": header}
    answer = await guarded.simulate_request(method, path, body=b'{"workflow":"one"}', headers=headers)
    assert (401, "Bearer") == (answer.status_code, answer.headers["www-authenticate"])
    assert "s3cret" not in answer.text
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("header", ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret"])
async def test_with_the_token_it_is_open(guarded: ASGIConductor, header: str) -> None:
    answer = await guarded.simulate_post("/runs", body=b'{"workflow":"one"}', headers={"Authorization": header})
    assert 201 == answer.status_code


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_need_no_token(guarded: ASGIConductor, path: str) -> None:
    assert 401 != (await guarded.simulate_get(path)).status_code
