"""The front end: an ASGI application that appends events, reads runs, and has no state of its own.

Rooms: resources/ has a responder for each path of the control plane; intake/ receives events and webhooks; bridge/ is
the HTTP interface of workers; live/ shows what steps say while they run; history/ compares and exports runs; diagnosis/
says why runs wait; limits/ shows limits and overrides them; system/ has /health, /ready and /metrics; middleware/
handles every request; messages/ has the contents of requests and responses, with errors.py, which maps every error to a
status; openapi/ is the document of all of it. backend.py is the connection to the store, catalog.py the cache of
definitions, served.py that of the served task types; server/ is what brings requests under gunicorn, front_end.py runs
all of it in a child process.

Not here: what an event means (engine/run), how runs are stored (actors/, broker/). This folder must never have an
__init__.py: with one, programs that are started in the checkout would import it instead of the standard library's http.
Start reading at `create_app`, then resources/runs.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from falcon.asgi import App, Request, Response

from penstock.actors.telemetry.telemetry import secret_values
from penstock.config.process.notice import NoticeReader
from penstock.config.settings import Settings, load
from penstock.http.access.audit import AuditResource
from penstock.http.access.audit_trail import AuditTrail
from penstock.http.access.belonging import Belonging
from penstock.http.access.keys import KeyResource, KeysResource
from penstock.http.access.sessions import SessionResource
from penstock.http.backend import Backend
from penstock.http.bridge.auth import BridgeAuth
from penstock.http.bridge.routes import (
    ConnectResource,
    ExchangeResource,
    PollResource,
    ResolveResource,
    RunSignalResource,
)
from penstock.http.bridge.service import OpenBridge
from penstock.http.console.assets import AssetResource, Assets
from penstock.http.console.pages import ConsoleResource, FrontDoor
from penstock.http.diagnosis.doctor import DoctorResource
from penstock.http.diagnosis.explanations import ExplanationResource
from penstock.http.diagnosis.run_summaries import SummariesResource
from penstock.http.history.diff import DiffResource
from penstock.http.history.export import ExportResource
from penstock.http.history.graph import GraphResource
from penstock.http.history.importing import ImportResource
from penstock.http.intake.calls import CallResource
from penstock.http.intake.events import EventIntakeResource
from penstock.http.intake.http_triggers import PREFIX, HttpTriggerSink
from penstock.http.intake.webhooks import WebhookResource
from penstock.http.limits.responders import LimitResource, LimitsResource
from penstock.http.live.logs import LogsResource
from penstock.http.live.streams import StreamResource
from penstock.http.messages import errors
from penstock.http.messages.presence import WatchableRequest
from penstock.http.middleware.auth import Auth
from penstock.http.middleware.browsers import Cors, ForeignPages
from penstock.http.middleware.counting import Counting
from penstock.http.middleware.credentials import Credentials
from penstock.http.middleware.key_ring import KeyRing
from penstock.http.middleware.methods import HeadingApp, Methods
from penstock.http.middleware.paths import Paths
from penstock.http.middleware.queries import Queries
from penstock.http.middleware.rights import RightsCheck
from penstock.http.middleware.sessions import Sessions
from penstock.http.middleware.trace_context import TraceContext
from penstock.http.openapi import definition_schema, document, page
from penstock.http.openapi.reference import DefinitionSchema, Document, Reference
from penstock.http.openapi.table import AUDITED, RIGHTS, WITHOUT_QUERY
from penstock.http.recovery.pausing import BulkPauseResource, BulkResumeResource
from penstock.http.recovery.pruning import PruneResource
from penstock.http.recovery.rerun import BulkRerunResource, RunRerunResource
from penstock.http.recovery.steps import StepRetryResource, StepSkipResource
from penstock.http.resources.approvals import ApprovalResource, ApprovalsResource, OperatorApprovalResource
from penstock.http.resources.bulk import BulkCancelResource, BulkRetryResource, BulkRunsResource
from penstock.http.resources.dead_letters import DeadLetterReplayResource, DeadLetterResource, DeadLettersResource
from penstock.http.resources.events import EventsResource
from penstock.http.resources.map_items import MapItemsResource
from penstock.http.resources.outputs import StepCheckpointResource, StepInputResource, StepOutputResource
from penstock.http.resources.retry import RunRetryResource
from penstock.http.resources.runs import (
    CancellationResource,
    PauseResource,
    ResumeResource,
    RunResource,
    RunsResource,
    RunStatsResource,
    SignalResource,
)
from penstock.http.resources.scheduled import ScheduledRunResource
from penstock.http.resources.tasks import TasksResource
from penstock.http.resources.triggers import (
    TriggerFireResource,
    TriggerResource,
    TriggersResource,
    TriggerTrialResource,
)
from penstock.http.resources.workers import WorkersResource
from penstock.http.resources.workflows import WorkflowResource, WorkflowsResource, WorkflowVersionsResource
from penstock.http.system.broker import BrokerResource
from penstock.http.system.health import Health, Ready, TelemetryHealth
from penstock.http.system.metrics import Metrics
from penstock.http.system.settings import SettingsResource
from penstock.http.system.storage import Changes, StorageHealth

Application: TypeAlias = App[Request, Response]


def create_app(settings: Settings, sources: Mapping[str, str] = {}) -> Application:
    """An application that connects to the broker in its lifespan, as soon as the broker is up; until then it answers
    503. `sources` says where each setting came from."""
    backend = Backend(settings.broker, secret_values(settings), settings.telemetry)
    app: Application = HeadingApp(request_type=WatchableRequest)
    app.add_middleware(Counting(backend.meters))
    if settings.telemetry.otlp_endpoint:
        app.add_middleware(TraceContext())
    if settings.http.cors_origins:
        app.add_middleware(Cors(settings.http.cors_origins))
    app.add_middleware(backend)
    app.add_middleware(Paths())
    app.add_middleware(Methods())
    credentials = Credentials(KeyRing(), Sessions(lambda: backend.store), settings.http)
    backend.beside.append(credentials.keys.following)
    app.add_middleware(Auth(credentials))
    app.add_middleware(ForeignPages(settings.http.cors_origins))
    app.add_middleware(BridgeAuth(credentials))
    belonging = Belonging(backend)
    app.add_middleware(RightsCheck(RIGHTS, belonging.check))
    app.add_middleware(AuditTrail(backend, credentials, AUDITED))
    app.add_middleware(Queries(WITHOUT_QUERY))
    notice = NoticeReader()
    app.add_middleware(Changes(notice))
    errors.register(app)
    app.add_route("/workflows", WorkflowsResource(backend))
    app.add_route("/workflows/{name}", WorkflowResource(backend))
    app.add_route("/workflows/{name}/versions", WorkflowVersionsResource(backend))
    app.add_route("/workflows/{name}/call", CallResource(backend))
    app.add_route("/runs", RunsResource(backend))
    app.add_route("/runs/stats", RunStatsResource(backend))
    app.add_route("/runs/bulk", BulkRunsResource(backend))
    app.add_route("/runs/cancel", BulkCancelResource(backend))
    app.add_route("/runs/retry", BulkRetryResource(backend))
    app.add_route("/runs/pause", BulkPauseResource(backend))
    app.add_route("/runs/resume", BulkResumeResource(backend))
    app.add_route("/runs/rerun", BulkRerunResource(backend))
    app.add_route("/runs/prune", PruneResource(backend))
    app.add_route("/runs/{run_id}", RunResource(backend))
    app.add_route("/runs/{run_id}/cancel", CancellationResource(backend))
    app.add_route("/runs/{run_id}/pause", PauseResource(backend))
    app.add_route("/runs/{run_id}/resume", ResumeResource(backend))
    app.add_route("/runs/{run_id}/retry", RunRetryResource(backend))
    storage = StorageHealth(backend, notice)
    app.add_route("/runs/summaries", SummariesResource(backend, storage))
    app.add_route("/runs/{run_id}/explain", ExplanationResource(backend, storage))
    app.add_route("/runs/{run_id}/rerun", RunRerunResource(backend))
    app.add_route("/runs/{run_id}/diff/{other}", DiffResource(backend))
    app.add_route("/runs/{run_id}/graph", GraphResource(backend))
    app.add_route("/runs/{run_id}/export", ExportResource(backend))
    app.add_route("/runs/import", ImportResource(backend))
    app.add_route("/runs/{run_id}/events", EventsResource(backend))
    app.add_route("/runs/{run_id}/logs", LogsResource(backend))
    app.add_route("/runs/{run_id}/stream", StreamResource(backend))
    app.add_route("/runs/{run_id}/scheduled", ScheduledRunResource(backend))
    app.add_route("/runs/{run_id}/signal/{name}", SignalResource(backend))
    app.add_route("/runs/{run_id}/approval/{step_id}", ApprovalResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/input", StepInputResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/output", StepOutputResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/checkpoint", StepCheckpointResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/items", MapItemsResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/retry", StepRetryResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/skip", StepSkipResource(backend))
    app.add_route("/approvals", ApprovalsResource(backend))
    app.add_route("/approvals/{run_id}/{step_id}", OperatorApprovalResource(backend))
    app.add_route("/triggers", TriggersResource(backend))
    app.add_route("/triggers/{name}", TriggerResource(backend))
    app.add_route("/triggers/{name}/fire", TriggerFireResource(backend))
    app.add_route("/triggers/{name}/test", TriggerTrialResource(backend))
    app.add_route("/v1/webhooks/{name}", WebhookResource(backend, settings.http.webhook_secret))
    app.add_sink(HttpTriggerSink(backend, credentials), PREFIX)
    app.add_route("/events/{name}", EventIntakeResource(backend))
    app.add_route("/limits", LimitsResource(backend))
    app.add_route("/limits/{scope}", LimitResource(backend))
    app.add_route("/dead-letters", DeadLettersResource(backend, belonging))
    app.add_route("/dead-letters/{seq}", DeadLetterResource(backend))
    app.add_route("/dead-letters/{seq}/replay", DeadLetterReplayResource(backend))
    app.add_route("/audit", AuditResource(backend))
    app.add_route("/session", SessionResource(credentials))
    app.add_route("/keys", KeysResource(backend, credentials))
    app.add_route("/keys/{name}", KeyResource(backend, credentials))
    app.add_route("/tasks", TasksResource(backend))
    app.add_route("/workers", WorkersResource(backend))
    bridge = OpenBridge(backend)
    app.add_route("/v1/workers/connect", ConnectResource(backend, bridge))
    app.add_route("/v1/tasks/poll", PollResource(backend, bridge))
    app.add_route("/v1/tasks/exchange", ExchangeResource(backend, bridge))
    app.add_route("/v1/tasks/{task_id}/resolve", ResolveResource(bridge))
    app.add_route("/v1/runs/{run_id}/signals/{name}", RunSignalResource(backend))
    app.add_route("/health", Health(backend, storage))
    app.add_route("/health/telemetry", TelemetryHealth(backend))
    app.add_route("/metrics", Metrics(backend))
    app.add_route("/doctor", DoctorResource(backend, storage))
    app.add_route("/broker", BrokerResource(backend))
    app.add_route("/settings", SettingsResource(settings, sources))
    app.add_route("/ready", Ready(backend, storage))
    app.add_route("/openapi.json", Document(document.to_json))
    app.add_route("/schemas/definition.json", DefinitionSchema(definition_schema.to_json))
    app.add_route("/docs", Reference(page.render, page.STYLE))
    _add_console(app, backend, credentials)
    return app


def _add_console(app: Application, backend: Backend, credentials: Credentials) -> None:
    assets = Assets()
    console = ConsoleResource(backend, credentials, assets)
    app.add_route("/", FrontDoor())
    app.add_route("/console", console)
    app.add_route("/console/assets/{version}/{name}", AssetResource(assets))
    app.add_route("/console/{page:path}", console)


def __getattr__(name: str) -> Application:
    """`application`, for a server that imports it; settings are read only then."""
    if name == "application":
        return create_app(*load())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
