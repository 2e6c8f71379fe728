"""Triggers as users write them and as the store holds them: what starts runs of which workflow.

`parse` makes a Trigger from an untyped document and checks every rule. Other code relies on these rules. The secret of
a webhook is never shown: users see `"secret": true`, and a document with that value keeps the stored secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from enum import StrEnum

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from penstock.engine.definition import values
from penstock.engine.definition.forms import (
    Document,
    Form,
    default_in_words,
    exactly_one,
    given,
    nested,
    read_object,
    rule,
)
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report
from penstock.engine.definition.subjects import SUBJECT_CHARS_MAX, WILDCARD_PATTERN, problem_with_subject
from penstock.engine.errors import Invalid
from penstock.engine.trigger.batching import BATCH, DEBOUNCE, Batch, Batching, Debounce
from penstock.engine.trigger.cron import Cron
from penstock.engine.trigger.labels import event_labels
from penstock.engine.trigger.routes import HTTP, HttpSource

SECRET_CHARS_MAX = 512
ENCODED_SECRET = "whsec_"  # noqa: S105 - how a secret of Standard Webhooks begins


class Kind(StrEnum):
    CRON = "cron"
    SUBJECT = "subject"
    EVENT = "event"
    WEBHOOK = "webhook"
    HTTP = "http"


ALONE = (Kind.CRON, Kind.HTTP)  # each of their events has a run of its own


class CronSource(Struct, frozen=True):
    expression: str
    timezone: str = "UTC"


class SubjectSource(Struct, frozen=True):
    """`subject` may have wildcards."""

    subject: str


class EventSource(Struct, frozen=True, omit_defaults=True):
    """`subject` begins with `event.`. With `field` (a dot path), only events that have this field, and this `value` if
    given."""

    subject: str
    field: str | None = None
    value: Raw | UnsetType = UNSET


class WebhookSource(Struct, frozen=True, omit_defaults=True):
    secret: str | None = None

    def __repr__(self) -> str:
        return f"WebhookSource(secret={'…' if self.secret else None})"


class Trigger(Struct, frozen=True, omit_defaults=True):
    """Exactly one of the sources is set. Without `input`, the payload of the trigger event is the run's input. `labels`
    are those of the runs, with expressions over the event. With `debounce` or `batch` several events start one run."""

    name: str
    workflow: str
    enabled: bool = True
    input: Raw | UnsetType = UNSET
    cron: CronSource | None = None
    subject: SubjectSource | None = None
    event: EventSource | None = None
    webhook: WebhookSource | None = None
    http: HttpSource | None = None
    labels: dict[str, str] | None = None
    debounce: Debounce | None = None
    batch: Batch | None = None

    @property
    def batching(self) -> Batching | None:
        return self.debounce or self.batch

    @property
    def kind(self) -> Kind:
        return next(kind for kind in Kind if getattr(self, kind) is not None)

    @property
    def secret(self) -> str | None:
        return self.webhook.secret if self.webhook else None

    @property
    def route(self) -> str | None:
        """The method and path of an http trigger: `POST orders/new`."""
        return self.http.route if self.http else None

    def same_source(self, other: Trigger) -> bool:
        """Whether both receive the same trigger events, each alone or in batches of the same kind; their filters may
        differ."""
        return (
            (self.kind, self.cron, self.subject) == (other.kind, other.cron, other.subject)
            and _events_of(self) == _events_of(other)
            and type(self.batching) is type(other.batching)
        )


def parse(document: object, kept_secret: str | None = None) -> Trigger:
    """The trigger in `document` (as `orjson.loads` gives it). Raises Invalid with all problems; none contains a secret.

    Where the document has `"secret": true`, the trigger has `kept_secret`.
    """
    if not isinstance(document, dict):
        raise Invalid(f"a trigger must be an object, not {json_type(document)}")
    report = Report()
    read = read_object(TRIGGER, "", document, report)
    report.add(*_source_problems(document))
    match read:
        case {"webhook": {"secret": True}}:
            report.add(
                *([] if kept_secret else ["webhook: secret must be a string: there is no stored secret to keep"])
            )
            read["webhook"] = {"secret": kept_secret}
    if found := report.problems():
        raise Invalid(*found)
    return msgspec.json.decode(orjson.dumps(read), type=Trigger)


def _source_problems(document: Document) -> Iterator[str]:
    given = [kind for kind in Kind if document.get(kind) is not None]
    if len(given) != 1:
        yield f"exactly one of {', '.join(Kind)} is needed, given: {', '.join(given) or 'none'}"
    batching = [name for name in ("debounce", "batch") if document.get(name) is not None]
    if len(batching) > 1:
        yield "debounce and batch: only one of them is possible"
    if batching and (wrong := [kind for kind in given if kind in ALONE]):
        yield f"{batching[0]} is for subject, event and webhook, not for {wrong[0]}"


@rule({"type": "boolean"})
def _boolean(path: str, value: object, report: Report) -> object:
    if not isinstance(value, bool):
        report.add(f"{path} must be true or false, not {values.described(value)}")
    return value


@rule(
    {
        "description": "True keeps the secret that there is.",
        "anyOf": [{"type": "string", "minLength": 1, "maxLength": SECRET_CHARS_MAX}, {"const": True}],
    }
)
def _secret(path: str, value: object, report: Report) -> object:
    """True means the stored secret. No problem contains the value."""
    if value is True:
        return value
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= SECRET_CHARS_MAX:
        report.add(f"{path} must be 1 to {SECRET_CHARS_MAX} printable characters")
    elif value.startswith(ENCODED_SECRET) and not _is_base64(value.removeprefix(ENCODED_SECRET)):
        report.add(f"{path} begins with {ENCODED_SECRET}, so base64 must follow")
    return value


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


@rule(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": SUBJECT_CHARS_MAX,
        "pattern": f"^{WILDCARD_PATTERN}$",
        "description": "A subject of the broker, none of the service's own; "
        "`*` and `>` may stand in it, but not at its beginning.",
        "examples": ["orders.*"],
    },
    component="Subject",
)
def _any_subject(path: str, value: object, report: Report) -> object:
    if problem := problem_with_subject(path, value, wildcards=True):
        report.add(problem)
    return value


def _read_event_subject(path: str, value: object, report: Report) -> object:
    if problem := problem_with_subject(path, value, wildcards=True):
        report.add(problem)
    elif isinstance(value, str) and not value.startswith("event."):
        report.add(f"{path} {quoted(value)} must begin with event.")
    return value


_event_subject = structs.replace(_any_subject, read=_read_event_subject, keywords={"pattern": r"^event\."})


def _cron_problems(document: Document) -> Iterator[str]:
    expression, timezone = document.get("expression"), document.get("timezone")
    timezone = "UTC" if timezone is None else timezone
    if isinstance(expression, str) and isinstance(timezone, str):
        try:
            Cron(expression, timezone)
        except Invalid as invalid:
            yield from invalid.problems


def _event_problems(document: Document) -> Iterator[str]:
    if "value" in document and document.get("field") is None:
        yield "value needs a field to compare with"


def _events_of(trigger: Trigger) -> str | None:
    return trigger.event.subject if trigger.event else None


CRON = Form(
    fields={
        "expression": values.text,
        "timezone": values.text.annotated(description=default_in_words("UTC"), examples=["Europe/Berlin"]),
    },
    required=("expression",),
    also=_cron_problems,
)

EVENT = Form(
    component="EventFilter",
    fields={
        "subject": _event_subject,
        "field": values.dot_path,
        "value": values.anything.annotated(description="Any JSON; null is a value, too."),
    },
    required=("subject",),
    nullable=frozenset({"value"}),
    also=_event_problems,
    schema={"dependentSchemas": {"value": given("field")}},
)

TRIGGER = Form(
    component="TriggerDocument",
    fields={
        "name": values.name,
        "workflow": values.name,
        "enabled": _boolean.annotated(description=default_in_words(True)),
        "input": values.anything.annotated(description="The input of its runs; without one, it is what came."),
        "cron": nested(CRON),
        "subject": nested(Form(fields={"subject": _any_subject}, required=("subject",))),
        "event": nested(EVENT),
        "webhook": nested(Form(fields={"secret": _secret})),
        "http": nested(HTTP),
        "debounce": nested(DEBOUNCE),
        "batch": nested(BATCH),
        "labels": event_labels.annotated(description="Of its runs; `${{ expression }}` may read `event`."),
    },
    required=("name", "workflow"),
    ignored={
        "created_at": "Ignored, so that what GET answered may be given back.",
        "next_at": "Ignored, as created_at.",
        "open_batches": "Ignored, as created_at.",
    },
    schema={
        **exactly_one(*Kind),
        "description": f"What starts runs: exactly one of {', '.join([*Kind][:-1])} and {[*Kind][-1]}.",
    },
)
