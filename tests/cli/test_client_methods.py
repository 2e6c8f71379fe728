"""Every operation of the API has a method of both clients, and every method sends one of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from inspect import isasyncgen
from typing import Any

import pytest

from penstock.client import AsyncClient, Client, NotFoundError
from penstock.client.bodies import ToCancel, ToPause, ToPrune, ToRerun, ToRetry
from penstock.client.views import TriggerView
from penstock.http.openapi.operations.operation import Access
from penstock.http.openapi.table import OPERATIONS
from tests.cli.conftest import Service

NAME = "x"
ARGUMENTS: dict[str, Any] = {
    "str": NAME,
    "str | Definable": NAME,
    "bytes": b"1",
    "int": 1,
    "Sequence[bytes]": [b"1"],
    "ToCancel": ToCancel(),
    "ToPause": ToPause(),
    "ToPrune": ToPrune(),
    "ToRerun": ToRerun(),
    "ToRetry": ToRetry(mode="replay"),
    "TriggerView": TriggerView(NAME, NAME, enabled=True, created_at=""),
}
"""What a parameter of this type gets."""

WITHOUT_METHOD = {
    "signIn": "a browser gets a cookie for its key; a client sends the key itself",
    "signOut": "as signIn",
    "receiveWebhook": "its senders are other systems, which sign what they send",
    "getDocument": "for generators of clients",
    "getReference": "a page for people",
    **{one.name: "of workers: penstock.worker sends it" for one in OPERATIONS if one.access is Access.BRIDGE},
}
WITHOUT_OPERATION = {"close": "it ends the connections"}
METHODS = sorted(name for name in vars(Client) if not name.startswith("_") and name not in WITHOUT_OPERATION)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    blocking, asynchronous = (
        {
            name: [(one.name, one.kind, one.default) for one in inspect.signature(found).parameters.values()]
            for name, found in vars(client).items()
            if not name.startswith("_")
        }
        for client in (Client, AsyncClient)
    )
    assert blocking == asynchronous


@pytest.mark.parametrize("client", [Client, AsyncClient])
async def test_every_operation_has_a_method_and_every_method_sends_one_operation(
    service: Service, client: type[Client] | type[AsyncClient]
) -> None:
    """The service knows nothing, and is asked all the same."""
    sent: dict[str, set[str]] = {}
    for name in METHODS:
        service.requests.clear()
        with suppress(NotFoundError):
            await used(client, service.url, name)
        sent[name] = {operation(request.line) for request in service.requests}

    assert {} == {name: found for name, found in sent.items() if len(found) != 1}
    assert set(WITHOUT_METHOD) == {one.name for one in OPERATIONS} - set.union(*sent.values())


async def used(kind: type[Client] | type[AsyncClient], url: str, name: str) -> None:
    """Call the method with what it needs, until its first result."""
    needed = [
        one
        for one in inspect.signature(vars(kind)[name]).parameters.values()
        if one.default is one.empty and one.name != "self"
    ]
    arguments = [ARGUMENTS[one.annotation] for one in needed]
    if issubclass(kind, Client):
        with kind(url) as client:
            result = getattr(client, name)(*arguments)
            if isinstance(result, Iterator):
                next(result)
        return
    async with kind(url) as connected:
        result = getattr(connected, name)(*arguments)
        await (anext(result) if isasyncgen(result) else result)


def operation(line: str) -> str:
    """The name of the operation that a request is of: the one with the fewest placeholders that fits."""
    method, _, target = line.partition(" ")
    path = target.partition("?")[0]
    fitting = [
        one
        for one in OPERATIONS
        if one.method.upper() == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one.path), path)
    ]
    assert fitting, f"no operation is {line}"
    return min(fitting, key=lambda one: one.path.count("{")).name
