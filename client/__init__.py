"""The client of the HTTP API, for Python programs and the command line.

    with Client("http://127.0.0.1:8080") as client:
        run_id = client.start("hello", b'{"name": "Ada"}').run_id
        for event in client.follow(run_id):
            print(event.type)

Here: `Client` (client.py), which blocks, and `AsyncClient` (async_client.py), for asyncio, with the same methods. Both
send the values that requests.py, workflow_requests.py, calls.py and the rooms make (api_request.py, bodies.py) over a
connection (connection.py, async_connection.py; address.py has the options of both), and get structs of views.py or
errors (responses.py, sending/). methods.py makes methods of the requests; runs/ is what `run` returns, live/ streams.

Not here: anything of the service but engine/ and config/. The service imports views.py, here and in the rooms, too:
what it answers is defined there, once. Start reading at requests.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.async_client import AsyncClient
    from penstock.client.bodies import ToCancel, ToPause, ToPrune, ToRerun, ToRetry
    from penstock.client.client import Client
    from penstock.client.runs.asynchronous import AsyncRunHandle
    from penstock.client.runs.blocking import RunHandle
    from penstock.client.runs.starting import RunFailedError
    from penstock.client.sending.errors import (
        ConflictError,
        ForbiddenError,
        InvalidError,
        NotAllowedError,
        NotFoundError,
        OverloadedError,
        ServiceError,
        TooLargeError,
        UnauthorizedError,
        UnavailableError,
        Unreachable,
    )
    from penstock.engine.errors import PenstockError

__all__ = [
    "AsyncClient",
    "AsyncRunHandle",
    "Client",
    "ConflictError",
    "ForbiddenError",
    "InvalidError",
    "NotAllowedError",
    "NotFoundError",
    "OverloadedError",
    "PenstockError",
    "RunFailedError",
    "RunHandle",
    "ServiceError",
    "ToCancel",
    "ToPause",
    "ToPrune",
    "ToRerun",
    "ToRetry",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "Unreachable",
]

_MODULES = {
    "ServiceError": "penstock.client.sending.errors",
    "AsyncClient": "penstock.client.async_client",
    "AsyncRunHandle": "penstock.client.runs.asynchronous",
    "Client": "penstock.client.client",
    "ConflictError": "penstock.client.sending.errors",
    "ForbiddenError": "penstock.client.sending.errors",
    "InvalidError": "penstock.client.sending.errors",
    "NotAllowedError": "penstock.client.sending.errors",
    "NotFoundError": "penstock.client.sending.errors",
    "OverloadedError": "penstock.client.sending.errors",
    "RunFailedError": "penstock.client.runs.starting",
    "RunHandle": "penstock.client.runs.blocking",
    "ToCancel": "penstock.client.bodies",
    "ToPause": "penstock.client.bodies",
    "ToPrune": "penstock.client.bodies",
    "ToRerun": "penstock.client.bodies",
    "ToRetry": "penstock.client.bodies",
    "TooLargeError": "penstock.client.sending.errors",
    "UnauthorizedError": "penstock.client.sending.errors",
    "UnavailableError": "penstock.client.sending.errors",
    "Unreachable": "penstock.client.sending.errors",
    "PenstockError": "penstock.engine.errors",
}


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when it is used: the service needs views.py, and no HTTP client."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
