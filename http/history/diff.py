"""/runs/{run_id}/diff/{other}: two runs, compared step by step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from falcon.asgi import Request, Response
from msgspec import UNSET, Raw

from penstock.actors.imports.reading import read
from penstock.actors.runs.outputs import Kept, shown
from penstock.client.history.views import DiffView, RunDiff, StepDiff
from penstock.client.views import RunView, StepView
from penstock.engine.run.state import Run
from penstock.http.backend import Backend
from penstock.http.messages import params, responses
from penstock.http.messages.views import view

# What never says by itself that two runs went differently: times, ids, and who did it.
NO_DIFFERENCE = frozenset(
    {"created_at", "started_at", "finished_at", "run_at", "wake_at", "duration_ms", "paused_at"}
    | {"run_id", "child_run_id", "rerun_of", "rerun_from", "parent", "failure_of", "trigger", "worker_id", "progress"}
    | {"overridden"}
)

_FIELDS = msgspec.json.Decoder(dict[str, Raw])


class DiffResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str, other: str) -> None:
        """Two runs, compared step by step."""
        store, ids = self._backend.store, (params.run_id(run_id), params.run_id(other))
        one, two = [await read(store, found) for found in ids]
        outputs = await shown(store, [one, two])
        responses.ok(resp, diff(_view(one, outputs), _view(two, outputs)))


def diff(one: RunView, two: RunView) -> DiffView:
    """The two runs, compared; steps in the order of the first run, then those that only the second has."""
    a, b = _of_run(one), _of_run(two)
    fields = _differing(a, b)
    steps = {step_id: _compared(one.steps.get(step_id), two.steps.get(step_id)) for step_id in (*one.steps, *two.steps)}
    return DiffView(RunDiff(bool(fields), fields, _raw(a), _raw(b)), steps)


def _compared(one: StepView | None, two: StepView | None) -> StepDiff:
    if one is None or two is None:
        return StepDiff(True, [], *(UNSET if step is None else _raw(_of_step(step)) for step in (one, two)))
    a, b = _of_step(one), _of_step(two)
    fields = _differing(a, b)
    return StepDiff(bool(fields), fields, _raw(a), _raw(b))


def _differing(a: Mapping[str, Raw], b: Mapping[str, Raw]) -> list[str]:
    return [name for name in dict.fromkeys((*a, *b)) if name not in NO_DIFFERENCE and not _same(a, b, name)]


def _same(a: Mapping[str, Raw], b: Mapping[str, Raw], name: str) -> bool:
    """Whether both have the same value, however it is written."""
    if (name in a) is not (name in b):
        return False
    return a[name] == b[name] or msgspec.json.decode(a[name]) == msgspec.json.decode(b[name])


def _of_run(run: RunView) -> dict[str, Raw]:
    found = _FIELDS.decode(msgspec.json.encode(msgspec.structs.replace(run, steps={})))
    del found["steps"]
    return found | _duration(run.started_at, run.finished_at)


def _of_step(step: StepView) -> dict[str, Raw]:
    return _FIELDS.decode(msgspec.json.encode(step)) | _duration(step.started_at, step.finished_at)


def _duration(started_at: str | None, finished_at: str | None) -> dict[str, Raw]:
    if not (started_at and finished_at):
        return {}
    try:
        took = datetime.fromisoformat(finished_at) - datetime.fromisoformat(started_at)
    except ValueError:  # other programs write events, too
        return {}
    return {"duration_ms": Raw(b"%d" % round(took.total_seconds() * 1000))}


def _raw(fields: Mapping[str, Raw]) -> Raw:
    return Raw(msgspec.json.encode(fields))


def _view(run: Run, outputs: Mapping[Kept, Raw]) -> RunView:
    return view(run, outputs)
