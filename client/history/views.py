"""The bodies of responses about recorded runs. As views.py of the client says."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.client.views import ItemCounts


class RunDiff(Struct, frozen=True):
    """`fields` are those in which the runs differ; `a` and `b` are the runs without their steps."""

    differs: bool
    fields: list[str]
    a: Raw
    b: Raw


class StepDiff(Struct, frozen=True, omit_defaults=True):
    """`a` and `b` are the step in both runs, with `duration_ms`; left out where a run does not have it. Times make no
    difference, nor does who carried the step out."""

    differs: bool
    fields: list[str] = []
    a: Raw | UnsetType = UNSET
    b: Raw | UnsetType = UNSET


class DiffView(Struct, frozen=True):
    """Two runs, compared step by step."""

    run: RunDiff
    steps: dict[str, StepDiff]


class NodeView(Struct, frozen=True, omit_defaults=True):
    """A step of a run. `handles` is the step from whose end this one follows; `items` counts the elements of a map."""

    id: str
    type: str
    status: str
    task: str | None = None
    handles: str | None = None
    items: ItemCounts | UnsetType = UNSET


class EdgeView(Struct, frozen=True, rename={"from_": "from"}):
    """`to` waits for `from`."""

    from_: str
    to: str


class GraphView(Struct, frozen=True):
    """The steps of a run, with those that planners have inserted, handlers and compensations. `layers` are ids, by the
    longest way to them."""

    nodes: list[NodeView]
    edges: list[EdgeView]
    layers: list[list[str]]


class ImportedRun(Struct, frozen=True):
    """A run that was imported, with the number of its events."""

    run_id: str
    workflow_id: str
    status: str
    events: int
    imported: bool = True


class ExportView(Struct, frozen=True):
    """A run with its definition and its events: each has its sequence and the time at which it was stored."""

    run_id: str
    definition: Raw
    events: list[Raw]
