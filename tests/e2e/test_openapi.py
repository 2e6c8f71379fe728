"""The running service answers as its document says: to what succeeds, and to all that schemathesis makes of the
document."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from html import unescape
from itertools import count
from typing import Any
from zlib import crc32

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import SearchStrategy, one_of
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.parameters import ParameterLocation

from penstock.config.gunicorn import limit_request_line
from penstock.config.limits import CALL_MS_MAX, POLL_MS_MAX
from penstock.http.openapi.curl import SERVICE
from penstock.http.openapi.document import refused
from penstock.http.openapi.operations.operation import STREAM, Access, Operation
from penstock.http.openapi.page import render
from penstock.http.openapi.table import OPERATIONS
from tests.support.reachable import API_TOKEN, BRIDGE_TOKEN, HEADERS, SECRET, Found, World
from tests.support.service import Service

load_all_checks()
RESUMED = "Last-Event-ID"
KEPT = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "unsupported_method",
        "allow_header_conformance",
        "negative_data_rejection",
        "missing_required_header",
        "ignored_auth",
    ]
)
EXAMPLES = 40
CHAINS = 15
STEPS = 8
WAIT_MS = 20
ANSWER_S_MAX = 20
LIMITS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate],
}
BY_NAME = {operation.name: operation for operation in OPERATIONS}
CONNECT = BY_NAME["connectWorker"]  # its stream never ends
ENDLESS = {"getStream", "getEvents"}  # of a run that has not ended, for whoever asks for a stream
ENDING = [operation for operation in OPERATIONS if operation is not CONNECT]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    tokens = {"SERVICE_API_TOKEN": API_TOKEN, "SERVICE_BRIDGE_TOKEN": BRIDGE_TOKEN}
    with Service(tmp_path_factory.mktemp("service"), tokens, shards=1, http_workers=1) as started:
        yield started


@pytest.fixture(scope="module")
def world(service: Service) -> Iterator[World]:
    with World(service.url) as made:
        yield made


@pytest.fixture(scope="module")
def api(service: Service, world: World) -> Any:
    """The document as schemathesis reads it from the service."""
    found = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    found.config.generation.update(with_security_parameters=False)  # every request has what it must show
    return found


@pytest.mark.parametrize("operation", ENDING, ids=lambda one: one.name)
def test_what_succeeds_is_answered_as_the_document_says(api: Any, world: World, operation: Operation) -> None:
    answer = world.send(operation)

    assert answer.status_code in operation.answers, answer.text
    api.find_operation_by_id(operation.name).validate_response(answer)


def test_a_stream_of_events_is_one(api: Any, world: World) -> None:
    answer = world.send(BY_NAME["getEvents"], Found({"run_id": world.failed()}), Accept=STREAM)

    api.find_operation_by_id("getEvents").validate_response(answer)
    assert STREAM == answer.headers["content-type"].partition(";")[0]
    assert "event: workflow.failed" in answer.text


@pytest.mark.parametrize("operation", ENDING, ids=lambda one: one.name)
def test_every_answer_is_as_the_document_says(api: Any, service: Service, world: World, operation: Operation) -> None:
    run_id = world.failed() if operation.name in ENDLESS else world.run()
    known = {"run_id": run_id, "other": world.run(), "seq": 1, "name": "push"}

    @settings(max_examples=EXAMPLES, **LIMITS)
    @given(_cases(api, operation))
    def ask(case: Case) -> None:
        _aim(case, known)
        params = {"token": "0" * 64} if operation.access is Access.APPROVAL else {}
        assume(_line_bytes(case, service.url, params) <= limit_request_line)  # else it is refused before it is read
        case.call_and_validate(
            service.url, headers=_headers(operation), params=params, checks=_checks(operation), timeout=ANSWER_S_MAX
        )

    ask()


def _line_bytes(case: Case, url: str, params: dict[str, str]) -> int:
    """The length of the request's first line, with the names of the method and of the protocol."""
    sent = case.as_transport_kwargs(base_url=url)
    given = {**(sent.get("params") or {}), **params}
    path = requests.Request(sent["method"], sent["url"], params=given).prepare().path_url
    return len(f"{sent['method']} {path} HTTP/1.1\r\n")


def _checks(operation: Operation) -> list[Any]:
    """In an exchange each answer stands for itself: a wrong one is told in its place, and the others are taken all the
    same."""
    return [check for check in KEPT if operation.name != "exchangeTasks" or check.__name__ != "negative_data_rejection"]


def test_every_answer_to_a_worker_that_connects_is_as_the_document_says(api: Any, service: Service) -> None:
    @settings(max_examples=EXAMPLES, **LIMITS)
    @given(_cases(api, CONNECT))
    def ask(case: Case) -> None:
        asked = case.as_transport_kwargs(base_url=service.url, headers=_headers(CONNECT))
        with requests.Session() as session, session.request(**asked, stream=True, timeout=ANSWER_S_MAX) as answer:
            assert answer.status_code in {*CONNECT.answers, *refused(CONNECT)}
            media = answer.headers["Content-Type"].partition(";")[0]
            assert (STREAM if answer.ok else "text/plain") == media

    ask()


def test_what_the_links_of_answers_lead_to_is_as_the_document_says(api: Any, service: Service) -> None:
    """Chains of requests, each with what an earlier answer held. None deletes a workflow: later chains would differ.

    A chain that begins as an earlier one did may get other answers, as the service has gone on; Hypothesis then ends
    its search, which is begun anew until there were enough chains.
    """
    machine = api.exclude(operation_id=[CONNECT.name, "deleteWorkflow"]).as_state_machine()
    chains, wrong = 0, list[Exception]()

    class Chain(machine):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            nonlocal chains
            super().__init__()
            chains += 1

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            return {"base_url": service.url, "headers": _headers(_operation(case)), "timeout": ANSWER_S_MAX}

        def before_call(self, case: Case) -> None:
            _aim(case, {})

        def validate_response(self, response: Any, case: Case, **_: Any) -> None:
            try:
                case.validate_response(response, checks=KEPT)
            except Exception as error:
                wrong.append(error)
                raise

    limits = settings(max_examples=CHAINS, stateful_step_count=STEPS, **{**LIMITS, "derandomize": False})
    for number in count():
        with suppress(FlakyStrategyDefinition):
            run_state_machine_as_test(seed(number)(Chain), settings=limits)
        if chains >= CHAINS or wrong:
            break
    assert [] == wrong


def test_every_command_of_the_page_works_in_a_shell(service: Service, world: World) -> None:
    """Each is understood and let in; what its example names may not be there."""
    commands = re.findall(r"<pre><code>(.*?)</code></pre>", render().decode(), re.DOTALL)

    assert len(OPERATIONS) == len(commands)
    world.define_webhook()
    world.revoke_key("ada")  # of the example
    for command in map(unescape, commands):
        absent = 400 if "/scheduled" in command else 404  # Spec: Scheduled runs, DELETE
        needed = 409 if "DELETE" in command and "/workflows/" in command else 404
        taken = 409 if "/runs/import" in command else 404  # by another import of the example's run
        command = command.replace("/greet/call", "/greet/call?timeout_ms=1")  # nobody carries its task out
        assert _status(service, command) in {200, 201, 202, 204, absent, needed, taken, 404}, command


def test_the_service_is_well_after_all_that(service: Service, world: World) -> None:
    assert "ready" == world.ask("GET", "/ready")["status"]
    assert [] == [line for line in service.log_lines() if line.get("event") in ("request_failed", "process_ended")]


def _status(service: Service, command: str) -> int:
    """What the service answers; a stream is left after a second."""
    token = BRIDGE_TOKEN if "/v1/" in command else API_TOKEN
    environ = {**os.environ, "TOKEN": token, "SECRET": SECRET, "no_proxy": "*"}
    told = command.replace(SERVICE, service.url) + " --max-time 1 --output /dev/null --write-out '%{http_code}'"
    return int(subprocess.run(["sh", "-c", told], env=environ, capture_output=True, text=True, check=False).stdout)


def _operation(case: Case) -> Operation:
    return next(
        one
        for one in OPERATIONS
        if (one.path, one.method.upper()) == (case.operation.path, case.operation.method.upper())
    )


def _headers(operation: Operation) -> dict[str, str]:
    return dict(HEADERS.get(operation.access, {}))


def _cases(api: Any, operation: Operation) -> SearchStrategy[Case]:
    """Requests that the document allows, and ones that it does not."""
    found = api.find_operation_by_id(operation.name)
    return one_of(*(found.as_strategy(generation_mode=mode) for mode in GenerationMode))


def _aim(case: Case, known: dict[str, Any]) -> None:
    """Towards what is there, every other time, and never at a long wait. What the document forbids stays forbidden."""
    parameters = case.path_parameters or {}
    if crc32(repr(parameters).encode(errors="replace")) % 2 and _is_allowed(case, ParameterLocation.PATH):
        parameters.update({name: known[name] for name in parameters if name in known})
    if _operation(case).name == "callWorkflow":
        case.query = {"timeout_ms": WAIT_MS, **(case.query or {})}
    if case.headers and case.headers.get(RESUMED, "-") in ("", {}, [], None):  # sent empty, it counts as not sent
        case.headers[RESUMED] = "-"
    body = case.body if isinstance(case.body, dict) else {}
    poll = body.get("poll") if isinstance(body.get("poll"), dict) else {}
    longest = CALL_MS_MAX if _operation(case).name == "callWorkflow" else POLL_MS_MAX
    for place in (case.query or {}, body, poll):
        for name in ("wait_ms", "timeout_ms"):
            if isinstance(place.get(name), int) and WAIT_MS < place[name] <= longest:
                place[name] = WAIT_MS


def _is_allowed(case: Case, place: ParameterLocation) -> bool:
    found = case.meta.components.get(place) if case.meta else None
    return found is not None and found.mode is GenerationMode.POSITIVE
