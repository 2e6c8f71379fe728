"""Triggers as users write them and as the store keeps them: what starts runs of which workflow.

`parse` makes a Trigger from an untyped document, with every rule checked; below it all of this holds. The secret of a
webhook is shown to nobody: what users see says `"secret": true`, and given back so, it keeps the one that there is.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine.definition import values
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report
from penstock.engine.definition.subjects import problem_with_subject
from penstock.engine.definition.values import Read
from penstock.engine.errors import Invalid
from penstock.engine.trigger.cron import Cron

SECRET_CHARS_MAX = 512
ENCODED_SECRET = "whsec_"  # noqa: S105 - how a secret of Standard Webhooks begins

Document: TypeAlias = dict[str, object]
Check: TypeAlias = Callable[[Document], Iterator[str]]


class Kind(StrEnum):
    CRON = "cron"
    SUBJECT = "subject"
    EVENT = "event"
    WEBHOOK = "webhook"


class CronSource(Struct, frozen=True):
    expression: str
    timezone: str = "UTC"


class SubjectSource(Struct, frozen=True):
    """`subject` may have wildcards."""

    subject: str


class EventSource(Struct, frozen=True, omit_defaults=True):
    """`subject` begins with `event.`. With `field` (a dot path), only events that have it, with this `value` if there
    is one."""

    subject: str
    field: str | None = None
    value: Raw | UnsetType = UNSET


class WebhookSource(Struct, frozen=True, omit_defaults=True):
    secret: str | None = None

    def __repr__(self) -> str:
        return f"WebhookSource(secret={'…' if self.secret else None})"


class Trigger(Struct, frozen=True, omit_defaults=True):
    """Exactly one of the last four is there. Without an `input` of its own, a run's input is what came."""

    name: str
    workflow: str
    enabled: bool = True
    input: Raw | UnsetType = UNSET
    cron: CronSource | None = None
    subject: SubjectSource | None = None
    event: EventSource | None = None
    webhook: WebhookSource | None = None

    @property
    def kind(self) -> Kind:
        return next(kind for kind in Kind if getattr(self, kind) is not None)

    @property
    def secret(self) -> str | None:
        return self.webhook.secret if self.webhook else None

    def same_source(self, other: Trigger) -> bool:
        """Whether both hear of the same occurrences, of which a filter may let through fewer."""
        return (self.kind, self.cron, self.subject) == (other.kind, other.cron, other.subject) and _heard(
            self
        ) == _heard(other)


def parse(document: object, kept_secret: str | None = None) -> Trigger:
    """The trigger in `document` (as `orjson.loads` gives it). Raises Invalid with all problems; none of them shows a
    secret.

    Where the document says `"secret": true`, the trigger has `kept_secret`.
    """
    if not isinstance(document, dict):
        raise Invalid(f"a trigger must be an object, not {json_type(document)}")
    report = Report()
    read = _read(TRIGGER, "", document, report)
    report.add(*_source_problems(document))
    match read:
        case {"webhook": {"secret": True}}:
            report.add(
                *([] if kept_secret else ["webhook: secret must be a string: none is kept that true could stand for"])
            )
            read["webhook"] = {"secret": kept_secret}
    if found := report.problems():
        raise Invalid(*found)
    return msgspec.json.decode(orjson.dumps(read), type=Trigger)


class _Form(Struct, frozen=True):
    """What an object may hold; `also` looks for what no single field can tell."""

    fields: Mapping[str, Read]
    required: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    also: Check | None = None


def _read(form: _Form, prefix: str, value: object, report: Report) -> Document:
    """The fields of `value` that are there, read; null is absent."""
    if not isinstance(value, dict):
        report.add(f"{prefix}an object is needed, not {json_type(value)}")
        return {}
    known = form.fields.keys() | form.ignored
    report.add(*(f"{prefix}unknown field {quoted(key)}" for key in value if key not in known))
    report.add(*(f"{prefix}{key} is missing" for key in form.required if value.get(key) is None))
    if form.also is not None:
        report.add(*(prefix + problem for problem in form.also(value)))
    return {
        key: read(prefix + key, value[key], report) for key, read in form.fields.items() if value.get(key) is not None
    }


def _within(form: _Form) -> Read:
    def read(path: str, value: object, report: Report) -> object:
        return _read(form, f"{path}: ", value, report)

    return read


def _source_problems(document: Document) -> Iterator[str]:
    given = [kind for kind in Kind if document.get(kind) is not None]
    if len(given) != 1:
        yield f"exactly one of {', '.join(Kind)} is needed, given: {', '.join(given) or 'none'}"


def _boolean(path: str, value: object, report: Report) -> object:
    if not isinstance(value, bool):
        report.add(f"{path} must be true or false, not {values.described(value)}")
    return value


def _secret(path: str, value: object, report: Report) -> object:
    """True stands for the one that is kept. The value is in no problem."""
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


def _any_subject(path: str, value: object, report: Report) -> object:
    if problem := problem_with_subject(path, value, wildcards=True):
        report.add(problem)
    return value


def _event_subject(path: str, value: object, report: Report) -> object:
    if problem := problem_with_subject(path, value, wildcards=True):
        report.add(problem)
    elif isinstance(value, str) and not value.startswith("event."):
        report.add(f"{path} {quoted(value)} must begin with event.")
    return value


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


def _event(path: str, value: object, report: Report) -> object:
    read = _read(EVENT, f"{path}: ", value, report)
    # Null is a value to compare with here, not an absent field.
    return {**read, "value": None} if isinstance(value, dict) and "value" in value and value["value"] is None else read


def _heard(trigger: Trigger) -> str | None:
    return trigger.event.subject if trigger.event else None


EVENT = _Form(
    fields={"subject": _event_subject, "field": values.dot_path, "value": values.anything},
    required=("subject",),
    also=_event_problems,
)

TRIGGER = _Form(
    fields={
        "name": values.name,
        "workflow": values.name,
        "enabled": _boolean,
        "input": values.anything,
        "cron": _within(
            _Form({"expression": values.text, "timezone": values.text}, ("expression",), also=_cron_problems)
        ),
        "subject": _within(_Form({"subject": _any_subject}, ("subject",))),
        "event": _event,
        "webhook": _within(_Form({"secret": _secret})),
    },
    required=("name", "workflow"),
    ignored=frozenset({"created_at", "next_at"}),  # answers have them
)
