"""Approvals over the life of the whole service: what was asked before it died can be decided after, and its time goes
on."""

from __future__ import annotations

from typing import Any

import httpx2
import orjson

from tests.e2e.conftest import StartService
from tests.support.service import Service
from tests.support.waiting import until


def started(service: Service, name: str, **config: Any) -> str:
    """A run that waits for an approval."""
    document = {"name": name, "steps": [{"id": "ok", "type": "approval", "config": config}]}
    with service.client() as client:
        client.register(orjson.dumps(document))
        return client.start(name).run_id


async def token_of(service: Service, run_id: str) -> str:
    async def find() -> str | None:
        with service.client() as client:
            requests = [event for event in client.events(run_id) if event.type == "approval.requested"]
        return orjson.loads(bytes(requests[0].payload))["token"] if requests else None  # type: ignore[arg-type]

    return await until(find)


def ended(service: Service, run_id: str) -> dict[str, Any]:
    answer = httpx2.get(f"{service.url}/runs/{run_id}", params={"wait_ms": 20_000}, timeout=30, trust_env=False)
    found: dict[str, Any] = answer.json()
    return found


async def test_a_request_from_before_a_power_cut_is_approved_after_it(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    run_id = started(service, "cut")
    token = await token_of(service, run_id)
    service.kill_all()
    service.start()
    url = f"{service.url}/runs/{run_id}/approval/ok"
    assert httpx2.post(url, params={"action": "approve", "token": token}, trust_env=False).status_code == 200
    assert ended(service, run_id)["status"] == "completed"


async def test_a_request_expires_in_time_though_nothing_of_ours_was_running_then(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    run_id = started(service, "over", timeout="4s")  # long enough for the broker to have taken the timer over
    token = await token_of(service, run_id)
    service.kill_all()
    service.start()
    run = ended(service, run_id)
    assert (run["status"], run["error"]) == ("failed", 'step "ok" failed: approval expired after 4s')
    url = f"{service.url}/runs/{run_id}/approval/ok"
    assert httpx2.post(url, params={"action": "approve", "token": token}, trust_env=False).status_code == 401


async def test_the_control_planes_token_is_not_needed_for_a_decision(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1, api_token="secret")
    headers = {"Authorization": "Bearer secret"}
    with httpx2.Client(base_url=service.url, headers=headers, trust_env=False) as client:
        client.post("/workflows", json={"name": "own", "steps": [{"id": "ok", "type": "approval"}]})
        run_id = client.post("/runs", json={"workflow": "own"}).json()["run_id"]

        async def find() -> str | None:
            events = client.get(f"/runs/{run_id}/events").json()
            return next((event["payload"]["token"] for event in events if event["type"] == "approval.requested"), None)

        token = await until(find)
        assert httpx2.get(f"{service.url}/runs/{run_id}", trust_env=False).status_code == 401
        url = f"{service.url}/runs/{run_id}/approval/ok"
        assert httpx2.post(url, params={"action": "approve", "token": token}, trust_env=False).status_code == 200
        assert client.get(f"/runs/{run_id}", params={"wait_ms": 20_000}, timeout=30).json()["status"] == "completed"
