"""Warns of what is valid in a definition and probably not meant, each time with the reason and what to do.

A check is a row of CHECKS. What registering warns of (engine/warnings.py) is found here, too, as far as it does not
depend on the service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

import orjson
from msgspec import Struct, UnsetType

from penstock.engine.definition.definitions import Retry, Step, WorkflowDef
from penstock.engine.definition.durations import seconds, text
from penstock.engine.errors import ExpressionFailed
from penstock.engine.run.compiling import expressions_of
from penstock.engine.run.kinds.table import queues
from penstock.engine.warnings import Facts, warnings

# Of task types: what nobody wants twice.
ONCE = frozenset(
    {
        *("bill", "book", "buy", "call", "capture", "charge", "create", "credit"),
        *("debit", "email", "invoice", "message", "notify", "order", "pay"),
        *("payment", "payout", "post", "publish", "purchase", "refund", "reserve", "sell"),
        *("send", "ship", "sms", "submit", "transfer", "withdraw"),
    }
)
KEY = re.compile(r"idempot|dedup|request_?id|\bkey\b|_key\b|Key\b")
KEYS_OF_THE_RUN = re.compile(r"\brun\.id\b")
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
NEVER = re.compile(r'\s*steps(?:\.\w+|\["[^"]+"\])\.status\s*==\s*"(?!completed|skipped|recovered)(\w+)"\s*')
RETRIED = frozenset({"normal", "agent_loop", "planner", "map", "sub_workflow", "http"})  # types with a task or a child
RETRIES_DELAY_S = 5.0  # of the short form `retries`
SUMMED_MAX = 1000  # retries of which every delay is looked at

Sides: TypeAlias = Collection[str]  # ids of steps whose functions return nothing


class LintFinding(Struct, frozen=True):
    """`step` is the step's id, empty for the workflow itself."""

    step: str
    what: str
    why: str
    fix: str

    def __str__(self) -> str:
        place = f'step "{self.step}": ' if self.step else ""
        return f"{place}{self.what}: {self.why}. {self.fix}."


Check: TypeAlias = Callable[[WorkflowDef, Sides], Iterator[LintFinding]]


def findings(definition: WorkflowDef, silent: Sides = ()) -> list[LintFinding]:
    """What is to be said of a valid definition, in the order of its steps. `silent` are steps without an output."""
    places = {step.id: number for number, step in enumerate(definition.steps)}
    found = [finding for check in CHECKS for finding in check(definition, silent)]
    return sorted(found, key=lambda finding: places.get(finding.step, -1))


def _unreachable(definition: WorkflowDef, silent: Sides) -> Iterator[LintFinding]:
    """Steps that no run carries out."""
    for step in definition.steps:
        if step.when is not None and (reason := _never(step, definition)):
            yield LintFinding(step.id, "it is never carried out", reason, "Remove the step, or change its `when`")
        if step.type == "map" and (step.config or {}).get("items") == []:
            yield LintFinding(step.id, "it has no elements", "`items` is an empty array", "Give `items` a template")


def _never(step: Step, definition: WorkflowDef) -> str | None:
    if match := NEVER.fullmatch(step.when or ""):
        return f'a step that others follow is completed, skipped or recovered, and never "{match[1]}"'
    compiled: Any = expressions_of(step, definition).get("when")
    references = getattr(compiled, "references", None)
    if references is None or references.names or references.outputs or references.statuses:
        return None
    try:
        return None if compiled.holds({}) else f"`when` is {step.when}, whatever the run has"
    except ExpressionFailed:
        return "`when` fails, whatever the run has"


def _unread(definition: WorkflowDef, silent: Sides) -> Iterator[LintFinding]:
    """Outputs that nobody reads, of steps that are carried out for them."""
    read = _read_outputs(definition)
    followed = {before for step in definition.steps for before in step.depends_on}
    for step in definition.steps:
        if step.type in RETRIED and step.id in followed - read and step.id not in silent:
            yield LintFinding(
                step.id,
                "nobody reads its output",
                "the steps that follow it are given another input, and no expression names it",
                f"Read steps.{step.id}.output in one of them, or let the task return nothing",
            )


def _read_outputs(definition: WorkflowDef) -> set[str]:
    read = {one for step in definition.steps if _takes_default(step) for one in step.depends_on}
    read |= {step.skip_if.step_id for step in definition.steps if step.skip_if is not None}
    read |= {step.id for step in definition.steps if step.compensate is not None}
    for step in definition.steps:
        for compiled in expressions_of(step, definition).values():
            read |= compiled.references.outputs
    return read


def _takes_default(step: Step) -> bool:
    """Whether the step is given the outputs of its predecessors without saying so."""
    match step.type:
        case "normal" | "agent_loop" | "planner" | "sub_workflow":
            return isinstance(step.input, UnsetType) or b"default" in bytes(step.input)
        case "map":
            return "items" not in (step.config or {})
        case _:
            return False


def _repeated(definition: WorkflowDef, silent: Sides) -> Iterator[LintFinding]:
    """Retries of what should happen once."""
    for step in definition.steps:
        for task in {task for task, _ in queues(step)} if step.type != "http" else ():
            words = {word.lower() for word in WORD.findall(task)}
            if (once := sorted(words & ONCE)) and _retry(step, definition) is not None and not _has_key(step):
                yield LintFinding(
                    step.id,
                    f'task "{task}" is retried, and seems not to be idempotent',
                    f'"{once[0]}" may happen twice: an attempt that failed, or timed out, may have had its effect',
                    'Give it a key for the receiver in its input, as "idempotency_key": "${{ run.id }}", or '
                    "`retries: 0` and an `on_failure`",
                )


def _has_key(step: Step) -> bool:
    if isinstance(step.input, UnsetType):
        return False
    given = orjson.loads(bytes(step.input))
    return isinstance(given, Mapping) and any(
        KEY.search(name) or (isinstance(value, str) and KEYS_OF_THE_RUN.search(value)) for name, value in given.items()
    )


def _too_short(definition: WorkflowDef, silent: Sides) -> Iterator[LintFinding]:
    """Timeouts that end before the retries do."""
    for step in definition.steps:
        if (retry := _retry(step, definition)) is None:
            continue
        need = _delays_s(retry) + (seconds(step.timeout) or 0.0) * (retry.max_attempts + 1)
        duration = (step.config or {}).get("max_duration") if step.type == "agent_loop" else None
        for of, limit in (("the workflow's timeout", definition.timeout), ("max_duration", duration)):
            if limit is not None and (seconds(limit) or 0.0) < need:
                yield LintFinding(
                    step.id,
                    f"{of} of {limit} is shorter than its retries",
                    f"{retry.max_attempts} retries with their delays and timeouts may take {text(round(need, 3))}",
                    f"Raise it above {text(round(need, 3))}, or lower the retries, their delays or the step's timeout",
                )


def _retry(step: Step, definition: WorkflowDef) -> Retry | None:
    """The retry policy that holds for the step; None if it is not retried."""
    if step.retries is not None:
        found: Retry | None = Retry(step.retries, initial_delay=text(RETRIES_DELAY_S))
    else:
        found = step.retry or definition.default_retry
    return found if found is not None and found.max_attempts and step.type in RETRIED else None


def _delays_s(retry: Retry) -> float:
    """The delays of all retries together."""
    first, most = seconds(retry.initial_delay) or 0.0, seconds(retry.max_delay)
    found = 0.0
    for number in range(1, min(retry.max_attempts, SUMMED_MAX) + 1):
        match retry.strategy:
            case "linear":
                delay = first * number
            case "exponential":
                delay = first * retry.multiplier ** min(number - 1, 60)
            case _:
                delay = first
        found += delay if most is None else min(delay, most)
    return found


def _warned_of(definition: WorkflowDef, silent: Sides) -> Iterator[LintFinding]:
    """What registering warns of, but for what depends on the service."""
    served = {queue for step in definition.steps for queue in queues(step)}
    for sentence in warnings(definition, Facts(served)):
        yield LintFinding("", sentence, "registering it warns of this", "See docs/workflows.md")


CHECKS: tuple[Check, ...] = (_unreachable, _unread, _repeated, _too_short, _warned_of)
