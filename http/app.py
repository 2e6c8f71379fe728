"""The front end: an ASGI application that appends events, reads runs, and has no state of its own.

Rooms: resources/ has a responder for each path of the control plane; intake/ receives events and webhooks; bridge/ is
the HTTP interface of workers; system/ has /health, /ready and /metrics; middleware/ handles every request; messages/
has the contents of requests and responses, with errors.py, which maps every error to a status; openapi/ is the document
of all of it. backend.py is the connection to the store, catalog.py the cache of definitions.

Not here: what an event means (engine/run), how runs are stored (actors/, broker/). This folder must never have an
__init__.py: with one, programs that are started in the checkout would import it instead of the standard library's http.
Start reading at `create_app`, then resources/runs.py.
"""

from __future__ import annotations

from typing import TypeAlias

from falcon.asgi import App, Request, Response

from penstock.actors.telemetry.telemetry import secret_values
from penstock.config.process.notice import NoticeReader
from penstock.config.settings import Settings, load
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
from penstock.http.intake.calls import CallResource
from penstock.http.intake.events import EventIntakeResource
from penstock.http.intake.http_triggers import PREFIX, HttpTriggerSink
from penstock.http.intake.webhooks import WebhookResource
from penstock.http.messages import errors
from penstock.http.messages.presence import WatchableRequest
from penstock.http.middleware.auth import Auth
from penstock.http.middleware.browsers import Cors, ForeignPages
from penstock.http.middleware.counting import Counting
from penstock.http.middleware.methods import HeadingApp, Methods
from penstock.http.middleware.paths import Paths
from penstock.http.middleware.protection import Protection
from penstock.http.middleware.queries import Queries
from penstock.http.openapi import document, page
from penstock.http.openapi.reference import Document, Reference
from penstock.http.openapi.table import WITHOUT_QUERY
from penstock.http.resources.approvals import ApprovalResource, ApprovalsResource, OperatorApprovalResource
from penstock.http.resources.bulk import BulkCancelResource, BulkRetryResource, BulkRunsResource
from penstock.http.resources.dead_letters import DeadLetterReplayResource, DeadLetterResource, DeadLettersResource
from penstock.http.resources.events import EventsResource
from penstock.http.resources.map_items import MapItemsResource
from penstock.http.resources.outputs import StepOutputResource
from penstock.http.resources.retry import RunRetryResource
from penstock.http.resources.runs import CancellationResource, RunResource, RunsResource, SignalResource
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
from penstock.http.system.health import Health, Ready, TelemetryHealth
from penstock.http.system.metrics import Metrics
from penstock.http.system.storage import Changes, StorageHealth

Application: TypeAlias = App[Request, Response]


def create_app(settings: Settings) -> Application:
    """An application that connects to the broker in its lifespan, as soon as the broker is up; until then it answers
    503."""
    backend = Backend(settings.broker, secret_values(settings))
    app: Application = HeadingApp(request_type=WatchableRequest)
    app.add_middleware(Counting(backend.meters))
    if settings.http.cors_origins:
        app.add_middleware(Cors(settings.http.cors_origins))
    app.add_middleware(backend)
    app.add_middleware(Paths())
    app.add_middleware(Methods())
    if settings.http.api_token:
        app.add_middleware(Auth(settings.http.api_token))
    elif settings.http.mode == "protected":
        app.add_middleware(Protection())
    app.add_middleware(ForeignPages(settings.http.cors_origins))
    app.add_middleware(BridgeAuth(settings.http.bridge_token))
    app.add_middleware(Queries(WITHOUT_QUERY))
    notice = NoticeReader()
    app.add_middleware(Changes(notice))
    errors.register(app)
    app.add_route("/workflows", WorkflowsResource(backend))
    app.add_route("/workflows/{name}", WorkflowResource(backend))
    app.add_route("/workflows/{name}/versions", WorkflowVersionsResource(backend))
    app.add_route("/workflows/{name}/call", CallResource(backend))
    app.add_route("/runs", RunsResource(backend))
    app.add_route("/runs/bulk", BulkRunsResource(backend))
    app.add_route("/runs/cancel", BulkCancelResource(backend))
    app.add_route("/runs/retry", BulkRetryResource(backend))
    app.add_route("/runs/{run_id}", RunResource(backend))
    app.add_route("/runs/{run_id}/cancel", CancellationResource(backend))
    app.add_route("/runs/{run_id}/retry", RunRetryResource(backend))
    app.add_route("/runs/{run_id}/events", EventsResource(backend))
    app.add_route("/runs/{run_id}/scheduled", ScheduledRunResource(backend))
    app.add_route("/runs/{run_id}/signal/{name}", SignalResource(backend))
    app.add_route("/runs/{run_id}/approval/{step_id}", ApprovalResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/output", StepOutputResource(backend))
    app.add_route("/runs/{run_id}/steps/{step_id}/items", MapItemsResource(backend))
    app.add_route("/approvals", ApprovalsResource(backend))
    app.add_route("/approvals/{run_id}/{step_id}", OperatorApprovalResource(backend))
    app.add_route("/triggers", TriggersResource(backend))
    app.add_route("/triggers/{name}", TriggerResource(backend))
    app.add_route("/triggers/{name}/fire", TriggerFireResource(backend))
    app.add_route("/triggers/{name}/test", TriggerTrialResource(backend))
    app.add_route("/v1/webhooks/{name}", WebhookResource(backend, settings.http.webhook_secret))
    app.add_sink(HttpTriggerSink(backend, settings.http.api_token), PREFIX)
    app.add_route("/events/{name}", EventIntakeResource(backend))
    app.add_route("/dead-letters", DeadLettersResource(backend))
    app.add_route("/dead-letters/{seq}", DeadLetterResource(backend))
    app.add_route("/dead-letters/{seq}/replay", DeadLetterReplayResource(backend))
    app.add_route("/tasks", TasksResource(backend))
    app.add_route("/workers", WorkersResource(backend))
    bridge = OpenBridge(backend)
    app.add_route("/v1/workers/connect", ConnectResource(backend, bridge))
    app.add_route("/v1/tasks/poll", PollResource(backend, bridge))
    app.add_route("/v1/tasks/exchange", ExchangeResource(backend, bridge))
    app.add_route("/v1/tasks/{task_id}/resolve", ResolveResource(bridge))
    app.add_route("/v1/runs/{run_id}/signals/{name}", RunSignalResource(backend))
    storage = StorageHealth(backend, notice)
    app.add_route("/health", Health(backend, storage))
    app.add_route("/health/telemetry", TelemetryHealth(backend))
    app.add_route("/metrics", Metrics(backend))
    app.add_route("/ready", Ready(backend, storage))
    app.add_route("/openapi.json", Document(document.to_json))
    app.add_route("/docs", Reference(page.render, page.STYLE))
    return app


def __getattr__(name: str) -> Application:
    """`application`, for a server that imports it; settings are read only then."""
    if name == "application":
        return create_app(load().settings)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
