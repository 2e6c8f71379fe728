"""The client of the HTTP API, for Python programs and the command line.

    with Client("http://127.0.0.1:8080") as client:
        run_id = client.start("hello", b'{"name": "Ada"}').run_id
        for event in client.follow(run_id):
            print(event.type)

Here: `Client` (client.py), which blocks, and `AsyncClient` (async_client.py), for asyncio, with the same methods. Both
send the values that requests.py, workflow_requests.py and calls.py make (api_request.py, bodies.py) over a connection
(connection.py, async_connection.py; address.py has the options of both), and get structs of views.py or errors
(responses.py). methods.py makes methods of the requests; following.py says when a lost stream is connected again.

Not here: anything of the service but engine/ and config/. The service imports views.py, here and in the rooms, too:
what it answers is defined there, once. Start reading at requests.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.async_client import AsyncClient
    from penstock.client.bodies import ToCancel, ToPause, ToPrune, ToRerun, ToRetry
    from penstock.client.client import Client
    from penstock.client.responses import Unreachable

__all__ = ["AsyncClient", "Client", "ToCancel", "ToPause", "ToPrune", "ToRerun", "ToRetry", "Unreachable"]

_MODULES = {
    "AsyncClient": "async_client",
    "Client": "client",
    "ToCancel": "bodies",
    "ToPause": "bodies",
    "ToPrune": "bodies",
    "ToRerun": "bodies",
    "ToRetry": "bodies",
    "Unreachable": "responses",
}


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when it is used: the service needs views.py, and no HTTP client."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
