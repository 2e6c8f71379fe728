"""The requests of the API about one step of a run, and reruns. As in requests.py, nothing here is sent."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw

from penstock.client.address import segment
from penstock.client.api_request import ApiRequest, post, post_once
from penstock.client.bodies import RerunOptions, StepOutput, ToPrune, ToRerun
from penstock.client.recovery.views import BulkPruned, BulkRerun, OverriddenStep, RepeatedRun, RetriedStep


def rerun(
    run_id: str,
    from_step: str | None = None,
    input: bytes | None = None,  # noqa: A002
    *,
    outputs: Mapping[str, bytes] | None = None,
    latest: bool = False,
    labels: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
) -> ApiRequest[RepeatedRun]:
    """Start a new run of one that has ended; `from_step` takes over all that does not depend on that step. `input` and
    `outputs` (by step) are JSON, in place of what the run had; `latest` takes the newest definition, `labels` replaces
    those of the run.

    Raises NotFound, Invalid for a step that it does not have, Conflict when it has not ended. Only the same
    `idempotency_key` makes a second call safe.
    """
    given = {step_id: Raw(output) for step_id, output in (outputs or {}).items()}
    named = None if labels is None else dict(labels)
    body = RerunOptions(from_step, UNSET if input is None else Raw(input), given, latest, named)
    return post_once(f"/runs/{segment(run_id)}/rerun", RepeatedRun, msgspec.json.encode(body), idempotency_key)


def rerun_all(matching: ToRerun) -> ApiRequest[BulkRerun]:
    """Start new runs of the ended runs that match, at most 1,000. Raises NotFound for an unknown workflow, Invalid when
    more match."""
    return post("/runs/rerun", BulkRerun, msgspec.json.encode(matching))


def prune(matching: ToPrune) -> ApiRequest[BulkPruned]:
    """Remove the runs that have ended and match, at most 1,000. Raises Invalid without a condition, or when more
    match."""
    return post("/runs/prune", BulkPruned, msgspec.json.encode(matching))


def retry_step(run_id: str, step_id: str) -> ApiRequest[RetriedStep]:
    """Have a failed run go on at this step, or begin the step's next attempt now. Raises NotFound, Conflict for a step
    that has neither failed nor waits for an attempt."""
    return post(f"/runs/{segment(run_id)}/steps/{segment(step_id)}/retry", RetriedStep)


def skip_step(run_id: str, step_id: str, output: bytes = b"null") -> ApiRequest[OverriddenStep]:
    """Complete a step by hand; `output` is JSON. A failed run goes on. Raises NotFound, Conflict for a step that has
    completed, or whose dependencies have not."""
    body = msgspec.json.encode(StepOutput(Raw(output)))
    return post(f"/runs/{segment(run_id)}/steps/{segment(step_id)}/skip", OverriddenStep, body)
