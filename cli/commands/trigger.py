"""`penstock trigger`: create, list, show, enable, disable, delete, fire, test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import orjson

from penstock.cli.terminal import documents, output, times
from penstock.cli.terminal.labels import TEMPLATE
from penstock.cli.terminal.session import REFUSED, Group, Session

if TYPE_CHECKING:
    from penstock.client.views import TrialView, TriggerView

# Of each kind: the fields of its part of the document, and the options that they come from.
SOURCES: Mapping[str, Mapping[str, str]] = {
    "webhook": {"secret": "secret"},
    "cron": {"expression": "cron", "timezone": "timezone"},
    "subject": {"subject": "subject"},
    "http": {"path": "http", "method": "method", "auth": "auth", "timeout": "timeout"},
    "event": {"subject": "event", "field": "filter_field", "value": "filter_value"},
}

HEADERS = ("TRIGGER", "KIND", "WHAT", "WORKFLOW", "ENABLED", "NEXT")
NAME = click.argument("name")
PAYLOAD = documents.given_option("What comes:")


@click.group(cls=Group)
def trigger() -> None:
    """Start runs by webhooks, events, subjects and cron."""


@trigger.command()
@click.argument("workflow")
@click.option("--webhook", is_flag=True, help="Start a run for each signed request to /v1/webhooks/NAME.")
@click.option(
    "--secret", metavar="S", help="Secret of the webhook; without it, the service's own (SERVICE_WEBHOOK_SECRET)."
)
@click.option(
    "--cron", metavar="EXPR", help='When the clock says so: "0 9 * * MON-FRI"; six fields begin with the second.'
)
@click.option("--timezone", metavar="TZ", help="Of --cron, such as Europe/Amsterdam.  [default: UTC]")
@click.option("--subject", metavar="SUBJ", help="For each message on a subject of the broker; wildcards * and >.")
@click.option("--event", metavar="SUBJ", help="For each event on a subject that begins with event.; wildcards * and >.")
@click.option("--filter-field", metavar="F", help="Of --event: only those with this field (a path with dots) ...")
@click.option("--filter-value", metavar="V", help="... and this value, as JSON or as its text.")
@click.option("--http", metavar="PATH", help="For each request to /v1/http/PATH, which is answered by the run.")
@click.option("--method", metavar="M", help="Of --http: GET, POST, PUT, PATCH or DELETE.  [default: POST]")
@click.option("--auth", type=click.Choice(["token", "none"]), help="Of --http: with the API token, or open to all.")
@click.option("--timeout", metavar="D", help="Of --http: how long a caller waits, such as 5s.  [default: 30s]")
@click.option("--debounce", metavar="D", help="One run with the last event, once none has come for so long: 5s.")
@click.option("--max-wait", metavar="D", help="Of --debounce: this long after the first event at the latest.")
@click.option("--batch", type=int, metavar="N", help="One run with an array of up to N events ...")
@click.option("--period", metavar="D", help="... and of those that come in this time after the first.")
@click.option("--key", metavar="EXPR", help="Of both: events with the same value belong together: event.customer.")
@click.option("--name", metavar="N", help="Default: WORKFLOW for a webhook, WORKFLOW-cron and so on for others.")
@documents.given_option("The input of every run, in place of what came:")
@TEMPLATE
@click.option("--disabled", is_flag=True, help="Make it, but do not listen yet.")
@click.option("--replace", is_flag=True, help="Also in place of a trigger of this name that is of another kind.")
@click.pass_obj
def create(
    session: Session,
    /,
    workflow: str,
    name: str | None,
    given: str | None,
    labels: dict[str, str],
    disabled: bool,
    replace: bool,
    debounce: str | None,
    max_wait: str | None,
    batch: int | None,
    period: str | None,
    key: str | None,
    **options: Any,
) -> None:
    """Make a trigger that starts runs of WORKFLOW, or replace the one of its name. One of --webhook, --cron, --subject,
    --event, --http."""
    kind, what = _source(options)
    name = name or (workflow if kind == "webhook" else f"{workflow}-{kind}")
    document = {
        "name": name,
        "workflow": workflow,
        "enabled": not disabled,
        kind: what,
        **_batching(debounce, max_wait, batch, period, key),
        **({"labels": labels} if labels else {}),
        **({} if given is None else {"input": orjson.Fragment(documents.run_input(given))}),
    }
    if not replace:
        _check_kind(session, name, kind)
    made = session.client().put_trigger(orjson.dumps(document))
    output.show(made, lambda: _say_created(session, made))


@trigger.command("list")
@click.pass_obj
def list_triggers(session: Session) -> None:
    """List the triggers."""
    found = session.client().triggers()
    output.show(found, lambda: output.table(HEADERS, map(_row, found)))


@trigger.command()
@NAME
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show the trigger NAME. Its secret is not shown."""
    found = session.client().trigger(name)
    output.show(found, lambda: _describe(found))


@trigger.command()
@NAME
@click.pass_obj
def enable(session: Session, name: str) -> None:
    """Have the trigger NAME listen, from now on."""
    _set_enabled(session, name, True)


@trigger.command()
@NAME
@click.pass_obj
def disable(session: Session, name: str) -> None:
    """Have the trigger NAME start nothing. What comes meanwhile is not made up for."""
    _set_enabled(session, name, False)


@trigger.command()
@NAME
@click.pass_obj
def delete(session: Session, name: str) -> None:
    """Remove the trigger NAME."""
    session.client().delete_trigger(name)
    output.show({"name": name, "status": "deleted"}, lambda: click.echo(f"deleted {name}"))


@trigger.command()
@NAME
@PAYLOAD
@click.pass_obj
def fire(session: Session, name: str, given: str | None) -> None:
    """Start a run of the trigger NAME by hand and print its id."""
    started = session.client().fire_trigger(name, _payload(given))
    output.show(started, lambda: click.echo(started.run_id))


@trigger.command()
@NAME
@PAYLOAD
@click.pass_obj
def test(session: Session, name: str, given: str | None) -> None:
    """Say what the trigger NAME would do if this came now; nothing is started. Exit code 1 when it would start no
    run."""
    trial = session.client().test_trigger(name, _payload(given))
    output.show(trial, lambda: _say_trial(trial))
    if not trial.would_start:
        click.get_current_context().exit(REFUSED)


def _source(options: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The kind that the options mean, and its part of the document. Raises UsageError for options that do not go
    together."""
    kinds = [kind for kind in SOURCES if options[kind]]
    if len(kinds) != 1:
        raise click.UsageError("exactly one of --webhook, --cron, --subject, --event, --http is needed")
    fields = SOURCES[kinds[0]]
    for wrong in (
        name for kind in SOURCES for name in SOURCES[kind].values() if options[name] and name not in fields.values()
    ):
        raise click.UsageError(f"--{wrong.replace('_', '-')} is not for --{kinds[0]}")
    return kinds[0], {field: options[name] for field, name in fields.items() if options[name] is not None}


def _batching(
    debounce: str | None, max_wait: str | None, batch: int | None, period: str | None, key: str | None
) -> dict[str, Any]:
    """What the options say of several events in one run. Raises UsageError for options that do not go together."""
    more = {} if key is None else {"key": key}
    if debounce is not None and batch is not None:
        raise click.UsageError("--debounce and --batch: only one of them is possible")
    if debounce is not None:
        if max_wait is None or period is not None:
            raise click.UsageError("--debounce needs --max-wait, and no --period")
        return {"debounce": {"period": debounce, "max_wait": max_wait, **more}}
    if batch is not None:
        if period is None or max_wait is not None:
            raise click.UsageError("--batch needs --period, and no --max-wait")
        return {"batch": {"size": batch, "period": period, **more}}
    for name, value in (("max-wait", max_wait), ("period", period), ("key", key)):
        if value is not None:
            raise click.UsageError(f"--{name} is for --debounce and --batch")
    return {}


def _check_kind(session: Session, name: str, kind: str) -> None:
    """Raises Conflict when the name is that of a trigger of another kind: it would silently stop listening to
    its source."""
    from penstock.engine.errors import Conflict, NotFound

    try:
        found, _ = _kind(session.client().trigger(name))
    except NotFound:
        return
    if found != kind:
        raise Conflict(f'trigger "{name}" is there and of another kind ({found}): give another --name, or --replace it')


def _set_enabled(session: Session, name: str, enabled: bool) -> None:
    from msgspec.structs import replace

    client = session.client()
    found = client.set_trigger(replace(client.trigger(name), enabled=enabled))
    output.show(found, lambda: click.echo(f"{'enabled' if found.enabled else 'disabled'} {found.name}"))


def _payload(given: str | None) -> bytes | None:
    return None if given is None else documents.run_input(given)


def _say_created(session: Session, made: TriggerView) -> None:
    click.echo(f"created {made.name}")
    if made.webhook is not None:
        click.echo(f"send signed requests to {session.url.rstrip('/')}/v1/webhooks/{made.name}")


def _row(found: TriggerView) -> tuple[str, ...]:
    kind, what = _kind(found)
    return (
        found.name,
        kind,
        what,
        found.workflow,
        "yes" if found.enabled else "no",
        times.age(found.next_at) if found.next_at else "",
    )


def _describe(found: TriggerView) -> None:
    kind, what = _kind(found)
    output.fields(
        [
            ("trigger", found.name),
            ("workflow", found.workflow),
            ("enabled", "yes" if found.enabled else "no"),
            (kind, what),
            *_runs_with(found),
            ("input", output.optional(found.input)),
            ("labels", _labels(found.labels)),
            ("created", times.moment(found.created_at)),
            ("next", times.moment(found.next_at or "")),
            *_open(found),
        ]
    )


def _runs_with(found: TriggerView) -> list[tuple[str, str]]:
    """How several events become one run, if they do."""
    from penstock.engine.trigger.batching import in_words

    batching = found.debounce or found.batch
    if batching is None:
        return []
    key = [("key", batching.key)] if batching.key else []
    return [("debounce" if found.debounce else "batch", in_words(batching)), *key]


def _open(found: TriggerView) -> list[tuple[str, str]]:
    """What waits for a run to be started with it, if anything does."""
    waiting = found.open_batches
    if waiting is None:
        return []
    batches = "1 batch" if waiting.batches == 1 else f"{waiting.batches} batches, the oldest one"
    events = "1 event" if waiting.events == 1 else f"{waiting.events} events"
    return [("waiting", f"{events} in {batches} until {times.moment(waiting.due_at)}")]


def _labels(labels: Mapping[str, str] | None) -> str:
    return " ".join(f"{key}:{value}" for key, value in (labels or {}).items())


def _kind(found: TriggerView) -> tuple[str, str]:
    if found.cron is not None:
        return "cron", f"{found.cron.expression} ({found.cron.timezone})"
    if found.subject is not None:
        return "subject", found.subject.subject
    if found.event is not None:
        return "event", found.event.subject + _filter(found.event.field, output.optional(found.event.value))
    if found.http is not None:
        return "http", f"{found.http.method} /v1/http/{found.http.path} (auth {found.http.auth})"
    return "webhook", "secret of its own" if found.webhook and found.webhook.secret else "default secret"


def _filter(field: str | None, value: str) -> str:
    if field is None:
        return ""
    return f" where {field} is {value}" if value else f" with {field}"


def _say_trial(trial: TrialView) -> None:
    click.echo(f"would start a run of {trial.workflow}" if trial.would_start else "would start nothing")
    for problem in trial.problems:
        click.echo(f"  {output.printable(problem)}")
    output.fields(
        [
            ("version", trial.version or ""),
            ("input", output.optional(trial.input)),
            ("labels", _labels(trial.labels)),
            ("when", trial.when or ""),
            ("key", trial.key or ""),
            *(("at", times.moment(instant)) for instant in trial.next),
        ]
    )
