"""Schemas of the structs that responders decode and encode, with the additional checks of their readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import UNSET, Struct, inspect, structs

from penstock.broker.worker_protocol.bridge_messages import (
    ConnectWorker,
    ExchangeTasks,
    NextPoll,
    PollTasks,
    ResolvedTask,
    ResolveTask,
    TaskAnswer,
)
from penstock.client import views
from penstock.client.history.views import ImportedRun
from penstock.client.limits.views import LimitView, LimitWaiterView
from penstock.client.operating.views import ExplanationView
from penstock.client.recovery.views import BulkRetried, PausedRun
from penstock.client.views import EventView, RunView, StepView, WorkerView
from penstock.engine.definition.forms import default_in_words
from penstock.engine.limits.names import LimitKind
from penstock.engine.run.state import RUN_ENDED, RunStatus, StepStatus
from penstock.engine.waiting.reasons import Reason, WaitingReason
from penstock.http.access.keys import NEW, CreateKey
from penstock.http.bridge import requests
from penstock.http.bridge.exchange import ANSWERS, WORKER
from penstock.http.history.importing import ImportRun
from penstock.http.messages.fields import Fields
from penstock.http.messages.params import ACTIONS
from penstock.http.openapi.definitions import Schema, array, described, one_of, ref, whole
from penstock.http.recovery import pausing, pruning, rerun, steps
from penstock.http.resources import bulk
from penstock.http.resources.approvals import Choice
from penstock.http.resources.retry import RETRY_RUN, RetryRun
from penstock.http.resources.runs import START, StartRun

PREFIX = ref("")["$ref"]
SELECTION: Mapping[str, Schema] = {
    "workflow_id": ref("Name"),
    "cursor": {"description": "With limit: continues an earlier request; out of its next."},
}
RESOLUTION: Mapping[str, Schema] = {
    "output": {"description": "complete, continue: any JSON."},
    "error": {"description": "fail: required, 8 KiB of it are kept; complete: empty, if given."},
    "failure_type": {"description": "fail: retriable (also any unknown word), non_retriable or retry_after."},
    "checkpoint": {"description": "pause: any JSON."},
    "data": {
        "description": "Required. checkpoint: any JSON; log: an array of lines, each {text, level, at, fields}, all "
        "but text optional; stream: any JSON of at most 64 KiB; progress: {done, total, text}, all but done optional."
    },
    "traceback": {"description": "fail: where the error came from; its last 8 KiB are kept."},
}

# The rules by which requests are read.
READ: Mapping[type[Struct], Fields] = {
    StartRun: START,
    bulk.StartRuns: bulk.START,
    bulk.CancelRuns: bulk.CANCEL,
    bulk.RetryRuns: bulk.RETRY,
    RetryRun: RETRY_RUN,
    CreateKey: NEW,
    pausing.PauseRuns: pausing.PAUSE,
    pruning.PruneRuns: pruning.PRUNE,
    rerun.RerunMany: rerun.RERUN_ALL,
    rerun.RerunOne: rerun.RERUN,
    ConnectWorker: requests.CONNECT,
    PollTasks: requests.WORKERS_POLL,
    NextPoll: {name: rule for name, rule in requests.POLL.items() if name != "worker_id"},
    ExchangeTasks: {**ANSWERS, **WORKER},
    ResolveTask: requests.RESOLUTION,
    TaskAnswer: requests.RESOLUTION,
}
# What is known of fields besides: names that the definition cache reads, what fields are for, and what answers hold.
KNOWN: Mapping[type[Struct], Mapping[str, Schema]] = {
    StartRun: {
        "workflow": ref("Name"),
        "input": {"description": "Any JSON, null if absent; it must fit the workflow's input_schema."},
        "run_at": {"format": "date-time", "description": "More than 1 s ahead schedules the run."},
    },
    bulk.StartRuns: {"workflow_id": ref("Name")},
    bulk.CancelRuns: SELECTION,
    bulk.RetryRuns: SELECTION,
    pausing.PauseRuns: SELECTION,
    pruning.PruneRuns: SELECTION,
    rerun.RerunMany: {**SELECTION, "from": {"description": "As for one run."}},
    rerun.RerunOne: {
        "from": {"description": "What does not depend on this step is taken over; without it nothing is."},
        "input": {"description": "Any JSON; without it the input of the run."},
        "outputs": {"description": "By step id, any JSON: in place of outputs that are taken over."},
    },
    ImportRun: {
        "run_id": ref("RunId"),
        "definition": {"type": "object", "description": "As the service gives it that has the run."},
        "events": {"minItems": 1, "description": "In the order of their seq; each with seq and stored_at."},
    },
    ImportedRun: {"status": one_of(*RunStatus), "run_id": ref("RunId")},
    steps.SkipStep: {"output": {"description": "Any JSON, null if absent."}},
    ResolveTask: RESOLUTION,
    TaskAnswer: {**RESOLUTION, "task_id": {"description": "As it was polled."}},
    ResolvedTask: {
        "status": one_of("ok", "error"),
        "code": {"description": "The status with which /v1/tasks/{task_id}/resolve would have refused it."},
    },
    RunView: {
        "status": one_of(*RunStatus),
        "compensation": one_of("completed", "failed"),
        "run_id": ref("RunId"),
        "input_bytes": whole(1, 2**31, description="In place of an input that is too large to be shown here."),
    },
    StepView: {
        "status": one_of(*StepStatus),
        "output_bytes": whole(1, 2**31, description="In place of an output that is too large to be shown here."),
        "traceback": {"description": "Where the error came from: the last frames, up to 8 KiB."},
    },
    EventView: {
        "seq": whole(1, 2**63 - 1, description="The sequence in the stream."),
        "payload": {"description": "Depends on the type."},
    },
    WaitingReason: {
        "reason": one_of(*Reason),
        "since": {"format": "date-time"},
        "until": {"format": "date-time"},
        "details": {"description": "Depends on the reason: busy and slots, place, attempt, worker_id, and so on."},
    },
    LimitView: {
        "kind": one_of(*LimitKind),
        "next_at": {"format": "date-time"},
    },
    LimitWaiterView: {"reason": one_of(Reason.CONCURRENCY, Reason.RATE_LIMIT)},
    ExplanationView: {"status": one_of(*RunStatus)},
    views.CancelledRun: {"status": one_of(RunStatus.CANCELLED, RunStatus.COMPENSATING)},
    PausedRun: {"status": one_of(*sorted(set(RunStatus) - RUN_ENDED))},
    views.SentEvent: {"seq": whole(1, 2**63 - 1, description="Its sequence among all events.")},
    Choice: {"action": one_of(*ACTIONS)},
    views.TaskQueueView: {"waiting": whole(0, 2**63 - 1), "in_hand": whole(0, 2**63 - 1)},
    views.DecidedApproval: {"status": one_of("approved", "rejected")},
}
RULES: Mapping[type[Struct], Mapping[str, Schema]] = {
    kind: {**{name: described(rule) for name, rule in READ.get(kind, {}).items()}, **KNOWN.get(kind, {})}
    for kind in {**READ, **KNOWN}
}
MOMENTS = frozenset({"at", "timestamp", "last_seen"})
# Components with a shorter name in the document than in Python, where another class has it.
NAMES: Mapping[type[Struct], str] = {
    views.ApprovalView: "Waiting",
    BulkRetried: "Retried",
    views.DecidedApproval: "Decided",
    views.SkippedRun: "Skipped",
    views.TaskQueueView: "TaskQueue",
    views.TrialView: "Trial",
}
# What others have written: only what they must write is there.
FROM_OTHERS = frozenset[type[Struct]]({EventView, WorkerView})


class Components:
    """The schemas of all structs of the API. Built once, by the document."""

    def __init__(self, requests: Iterable[type[Struct]], answers: Iterable[type[Struct]]) -> None:
        asked, answered = _structs(requests), _structs(answers)
        assert not asked.keys() & answered.keys(), "what is both asked and answered would need two schemas"
        kinds = [*asked, *answered]
        references, found = msgspec.json.schema_components(kinds, ref_template=PREFIX + "{name}")
        generated = [reference["$ref"].removeprefix(PREFIX) for reference in references]
        self._names = {kind: _name(kind, name) for kind, name in zip(kinds, generated, strict=True)}
        renamed = {PREFIX + old: PREFIX + new for old, new in zip(generated, self._names.values(), strict=True)}
        self.schemas = {
            self._names[kind]: _renamed(_finished(kind, found[name], answer=kind in answered), renamed)
            for kind, name in zip(kinds, generated, strict=True)
        }

    def schema(self, kind: Any) -> Schema:
        """A reference to a struct's schema, or an array of such."""
        if isinstance(kind, type) and issubclass(kind, Struct):
            return ref(self._names[kind])
        (item,) = kind.__args__
        return array(self.schema(item))


def _structs(kinds: Iterable[Any]) -> dict[type[Struct], None]:
    """All structs, and those that they contain, in a fixed order."""
    found: dict[type[Struct], None] = {}
    for kind in kinds:
        found |= dict.fromkeys(_within(inspect.type_info(kind)))
    return found


def _within(info: inspect.Type) -> Iterator[type[Struct]]:
    match info:
        case inspect.StructType():
            yield info.cls
            for field in info.fields:
                yield from _within(field.type)
        case inspect.UnionType():
            for kind in info.types:
                yield from _within(kind)
        case inspect.ListType() | inspect.VarTupleType():
            yield from _within(info.item_type)
        case inspect.DictType():
            yield from _within(info.value_type)


def _name(kind: type[Struct], generated: str) -> str:
    """The name of a struct's component: its own; where several structs have it, with that of its module before it."""
    if kind in NAMES:
        return NAMES[kind]
    if "." not in generated:
        return generated
    module = kind.__module__.rpartition(".")[2]
    return "".join(word.capitalize() for word in module.split("_")) + kind.__name__


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    match schema:
        case dict():
            return {key: _renamed(value, names) for key, value in schema.items()}
        case list():
            return [_renamed(value, names) for value in schema]
        case str():
            return names.get(schema, schema)
        case _:
            return schema


def _finished(kind: type[Struct], schema: dict[str, Any], *, answer: bool) -> dict[str, Any]:
    properties = schema["properties"]
    fields = {field.encode_name: field for field in structs.fields(kind)}
    for name, rule in RULES.get(kind, {}).items():
        properties[name] = _ruled(properties[name], rule)
    if not answer:
        properties = {name: _without_default(one) for name, one in properties.items()}
    else:
        schema["required"] = [name for name, field in fields.items() if _always_there(kind, field)]
        for name, field in fields.items():
            properties[name] = _answered(properties[name]) | _derived(kind, field)
    del schema["title"]
    return {**schema, "properties": properties, **_unindented(schema)}


def _unindented(schema: Mapping[str, Any]) -> dict[str, str]:
    """The description, without the indentation of the docstring that some versions of msgspec leave in it."""
    return {"description": cleandoc(schema["description"])} if "description" in schema else {}


def _without_default(schema: dict[str, Any]) -> dict[str, Any]:
    """Describe a default in words: generators of clients treat a field with a `default` as always present, and require
    it."""
    rest = {key: value for key, value in schema.items() if key != "default"}
    default = schema.get("default")
    if default is None or default in ([], {}):
        return rest
    described = f"{rest.get('description', '')} {default_in_words(default)}".strip()
    return {**rest, "description": described}


def _always_there(kind: type[Struct], field: structs.FieldInfo) -> bool:
    if kind in FROM_OTHERS or kind.__struct_config__.omit_defaults or field.default is UNSET:
        return field.required
    return True


def _derived(kind: type[Struct], field: structs.FieldInfo) -> dict[str, Any]:
    """What follows from names and defaults of an answer: times, and words that are always the same."""
    if field.encode_name in MOMENTS or field.encode_name.endswith("_at"):
        return {"format": "date-time"}
    if field.encode_name == "next":
        return {"items": {"type": "string", "format": "date-time"}}
    fixed = (
        kind.__module__.startswith(("penstock.http.", "penstock.client."))
        and not kind.__struct_config__.omit_defaults
        and isinstance(field.default, str)
    )
    return {"const": str(field.default)} if fixed else {}


def _answered(schema: dict[str, Any]) -> dict[str, Any]:
    """As it is when it is there. Protocol: Status, absent fields are left out, never null."""
    rest = {key: value for key, value in schema.items() if key != "default"}
    if "anyOf" not in rest:
        return rest
    options = [option for option in rest.pop("anyOf") if option != {"type": "null"}]
    return {**rest, **(options[0] if len(options) == 1 else {"anyOf": options})}


def _ruled(schema: dict[str, Any], rule: Schema) -> dict[str, Any]:
    """The schema with the rule; null stays allowed. A reference replaces the whole schema."""
    options = schema.get("anyOf")
    if options is None:
        kept = (
            {key: schema[key] for key in ("default",) if key in schema} if "$ref" in rule or "type" in rule else schema
        )
        return {**kept, **rule}
    described = {key: value for key, value in rule.items() if key == "description"}
    keywords = {key: value for key, value in rule.items() if key != "description"}
    ruled = [option if option == {"type": "null"} else _ruled(option, keywords) for option in options]
    return {**schema, "anyOf": ruled, **described}
