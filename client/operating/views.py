"""The bodies of responses about why runs wait and what is wrong with the service. As views.py of the client says."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from penstock.client.views import ParentView
from penstock.engine.run.event_payloads import TriggerRef
from penstock.engine.waiting.reasons import WaitingReason


class ExplanationView(Struct, frozen=True):
    """`status` is the run's. `waiting` is empty when it has ended, and while workers carry it out."""

    status: str
    waiting: list[WaitingReason]


class RunSummary(Struct, frozen=True, omit_defaults=True):
    """A run in short. `steps` counts its steps by status. `input` is the beginning of the input's JSON text, and
    `input_bytes` the size of the whole, where there is more; `error` is its beginning, too. `waiting` is the first
    reason for which the run does not go on, one that wants somebody before others; it is there when it was asked for.
    `held_up`: somebody has to act. `failed_items` are the elements of its maps that have failed."""

    run_id: str
    workflow_id: str
    version: str
    status: str
    created_at: str
    steps: dict[str, int]
    input: str | None = None
    input_bytes: int | UnsetType = UNSET
    error: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    run_at: str | None = None
    parent: ParentView | str | None = None
    rerun_of: str | None = None
    trigger: TriggerRef | None = None
    failure_of: str | None = None
    labels: dict[str, str] | None = None
    paused_at: str | None = None
    imported: bool = False
    waiting: WaitingReason | None = None
    held_up: bool = False
    failed_items: int = 0


class CheckView(Struct, frozen=True):
    """Whether a check of the service has found nothing."""

    check: str
    ok: bool


class FindingView(Struct, frozen=True):
    """What is wrong, and what can be done about it: a sentence each."""

    check: str
    text: str
    remedy: str


class StreamCopyView(Struct, frozen=True):
    """A copy of a stream on another node. `current`: it has all that the leader has; else it is `behind` by so many
    operations."""

    node: str
    current: bool
    online: bool
    behind: int


class StreamView(Struct, frozen=True):
    """A stream or bucket of the broker. `leader` is the node that takes writes, empty while there is none."""

    stream: str
    messages: int
    bytes: int
    leader: str
    copies: list[StreamCopyView]


class BrokerNodeView(Struct, frozen=True):
    """A node that has streams of the service, of how many it is the leader, and of how many it has a copy."""

    node: str
    leads: int
    follows: int
    online: bool


class BrokerView(Struct, frozen=True, omit_defaults=True):
    """Where everything is stored. `embedded`: the service runs the broker itself; only then it knows `fsync`, how
    writes reach the disk. Without `storage_limit_bytes` there is no limit, or the broker does not say it."""

    address: str
    version: str
    embedded: bool
    storage_bytes: int
    nodes: list[BrokerNodeView]
    streams: list[StreamView]
    storage_limit_bytes: int | None = None
    cluster: str | None = None
    fsync: str | None = None


class SettingView(Struct, frozen=True):
    """An effective setting as text, and where its value came from: a flag, the environment, a file, or the default.
    Of a secret only whether it is set."""

    key: str
    value: str
    source: str
    about: str


class DoctorView(Struct, frozen=True):
    """All checks of the service, what they have found, and notes: what is meant to be so, and worth knowing."""

    checks: list[CheckView]
    findings: list[FindingView]
    notes: list[FindingView] = []


class TelemetryStream(Struct, frozen=True):
    """`percent` is how much of the stream's limit is used; 0 without a limit."""

    messages: int
    bytes: int
    percent: float


class StreamTelemetry(Struct, frozen=True):
    stream: TelemetryStream


class TelemetryStatus(Struct, frozen=True):
    """How much telemetry is stored. Always healthy, because nothing depends on it."""

    telemetry: StreamTelemetry
    status: str = "healthy"
