"""The front end: an ASGI application that appends events, reads runs, and holds no state of its own.

Here: one file per resource (workflows.py, runs.py, bulk.py, events.py, workers.py, health.py); what a request may hold
(bodies.py, params.py, auth.py); what is answered (answers.py, views.py, errors.py: every error becomes a status there and
nowhere else); backend.py, the connection to the store; catalog.py, the definitions at hand; client.py, the other end.
Not here: what an event means (engine/), how runs are kept (actors/, broker/).
Never an __init__.py: with one, whatever starts in the checkout finds this folder in place of the standard library's http.
Start reading at `create_app`, then runs.py.
"""

from __future__ import annotations

from typing import TypeAlias

from falcon.asgi import App, Request, Response

from penstock.config.settings import Settings, load
from penstock.http import errors
from penstock.http.auth import Auth
from penstock.http.backend import Backend
from penstock.http.bulk import BulkRuns, NotYet
from penstock.http.events import Events
from penstock.http.health import Health, Ready
from penstock.http.methods import Methods
from penstock.http.runs import Cancellation, Run, Runs
from penstock.http.workers import Workers
from penstock.http.workflows import Workflow, Workflows

Application: TypeAlias = App[Request, Response]


def create_app(settings: Settings) -> Application:
    """An application that connects to the broker in its lifespan, as soon as there is one; until then it answers 503."""
    backend = Backend(settings.broker)
    app: Application = App()
    app.add_middleware(backend)
    app.add_middleware(Methods())
    if settings.http.api_token:
        app.add_middleware(Auth(settings.http.api_token))
    errors.register(app)
    app.add_route("/workflows", Workflows(backend))
    app.add_route("/workflows/{name}", Workflow(backend))
    app.add_route("/runs", Runs(backend))
    app.add_route("/runs/bulk", BulkRuns(backend))
    app.add_route("/runs/cancel", NotYet("bulk cancel"))
    app.add_route("/runs/retry", NotYet("bulk retry"))
    app.add_route("/runs/{run_id}", Run(backend))
    app.add_route("/runs/{run_id}/cancel", Cancellation(backend))
    app.add_route("/runs/{run_id}/events", Events(backend))
    app.add_route("/workers", Workers(backend))
    app.add_route("/health", Health(backend))
    app.add_route("/ready", Ready(backend))
    return app


def __getattr__(name: str) -> Application:
    """`application`, for a server that imports it; settings are read no earlier."""
    if name == "application":
        return create_app(load().settings)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
