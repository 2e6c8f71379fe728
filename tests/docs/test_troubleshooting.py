"""docs/troubleshooting.md: each entry says how to see it and what to do, and what it names exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import click
import pytest

from penstock.cli import main
from penstock.config.keys import KEYS
from penstock.engine.waiting.reasons import Reason, WaitingReason
from penstock.http.diagnosis.checks.table import CHECKS
from penstock.http.openapi.document import document
from penstock.telemetry.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
ENTRY = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`|^ {4}(.+)$", re.MULTILINE)
REQUEST = re.compile(r"(GET|POST|PUT|DELETE) (/\S*)")
NAME = re.compile(r"[a-z]+(?:_[a-z]+)+")
VARIABLE = re.compile(r"SERVICE_[A-Z_]+")
LOGGED = re.compile(r"(?:\.(?:info|warning|error|exception)\(|log_rate_limited\(log,)\s*\"([a-z_]+)\"")
PARTS = ("engine", "broker", "actors", "config", "http", "telemetry", "worker")
OF_THE_COMMAND_LINE = {"SERVICE_URL"}
# Fields of definitions and options of workers, which no table of ours lists.
FIELDS = {"input_schema", "worker_group", "worker_id", "max_tasks"}


def code(text: str) -> list[str]:
    return [" ".join((inline or block).split("#")[0].split()) for inline, block in CODE.findall(text)]


def commands(text: str) -> list[str]:
    return [one for one in code(text) if one.startswith("penstock ")]


def problem(command: str) -> str | None:
    """What of a command does not exist; None for one that does."""
    found: click.Command | None = main.penstock
    words = command.split()[1:]
    while isinstance(found, click.Group) and words:
        context, word = click.Context(found), words.pop(0)
        found = found.get_command(context, word)
        if found is None:
            return f"no command {word}"
    if isinstance(found, click.Group):
        return "a group"
    assert found is not None
    known = {name for option in found.params if isinstance(option, click.Option) for name in option.opts}
    wrong = [word for word in words if word.startswith("-") and word not in known]
    return f"no option {wrong[0]}" if wrong else None


@cache
def logged() -> set[str]:
    """The names of log events in our sources."""
    sources = (path.read_text() for part in PARTS for path in (ROOT / part).rglob("*.py"))
    return {name for source in sources for name in LOGGED.findall(source)}


def names() -> set[str]:
    return {*KEYS} | {reason.value for reason in Reason} | {*CHECKS} | {*METRICS} | logged()


def test_every_entry_says_how_to_see_it_and_what_to_do() -> None:
    entries = ENTRY.findall(PAGE)

    assert len(entries) > 20
    assert [] == [title for title, text in entries if not 0 < text.find("**See it:**") < text.find("**Do:**")]
    assert [] == [title for title, text in entries if not code(text)]


@pytest.mark.parametrize("command", sorted(set(commands(PAGE))))
def test_a_command_exists_with_its_options(command: str) -> None:
    assert problem(command) is None


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert "no command mend" == problem("penstock run mend RUN")
    assert "no option --hard" == problem("penstock run retry RUN --hard")
    assert "a group" == problem("penstock run")


def test_every_request_is_in_the_openapi_document() -> None:
    asked = [REQUEST.fullmatch(one) for one in code(PAGE)]
    requests = {(found[1], found[2]) for found in asked if found}
    paths = document()["paths"]

    assert len(requests) > 5
    assert set() == {(method, path) for method, path in requests if method.lower() not in paths.get(path, {})}


def test_every_setting_reason_check_metric_and_log_event_exists() -> None:
    named = {one for one in code(PAGE) if NAME.fullmatch(one)}

    assert len(named) > 20
    assert FIELDS == named - names()


def test_every_variable_is_one_of_a_setting() -> None:
    variables = set(VARIABLE.findall(PAGE))

    assert len(variables) > 2
    assert set() == variables - {f"SERVICE_{name.upper()}" for name in KEYS} - OF_THE_COMMAND_LINE


def wants_somebody(reason: Reason) -> bool:
    return WaitingReason(reason=reason, since="", text="", details={}).wants_somebody


def test_every_reason_for_which_somebody_has_to_act_is_in_the_table() -> None:
    first_cells = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in code(row)}

    assert set() == {reason.value for reason in Reason if wants_somebody(reason)} - first_cells
