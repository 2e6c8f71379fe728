"""`penstock limit`: who has slots and who waits for them, and how much is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.session import Group, Session

if TYPE_CHECKING:
    from penstock.client.limits.views import LimitView, RateView

HEADERS = ("SCOPE", "KIND", "KEY", "ALLOWED", "IN USE", "WAITING", "OVERRIDDEN")
WHO = ("RUN", "STEP", "SINCE")
WAITING = ("PLACE", "RUN", "STEP", "PRIORITY")
KINDS = ("runs", "executions", "rate")
SHOWN = 20

SCOPE = click.argument("scope")
KEY = click.option("--key", metavar="KEY", help="Of this value of the limit's key.")
KIND = click.option("--kind", type=click.Choice(KINDS), help="Which one, if the scope has limits of several kinds.")


@click.group(cls=Group)
def limit() -> None:
    """List limits, show who holds and who waits, override them."""


@limit.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many.")
@click.pass_obj
def list_limits(session: Session, limit: int) -> None:
    """List limits, those for which most wait first."""
    found = session.client().limits(limit=limit)
    output.show(found, lambda: output.table(HEADERS, map(_row, found)))


@limit.command()
@SCOPE
@KEY
@KIND
@click.pass_obj
def show(session: Session, scope: str, key: str | None, kind: str | None) -> None:
    """Show one limit: how much it allows, who holds its slots, who waits."""
    found = session.client().limit(scope, key=key, kind=kind)
    output.show(found, lambda: _describe(found))


@limit.command("set")
@SCOPE
@click.argument("limit", type=click.IntRange(min=0))
@click.option("--per", metavar="DURATION", help="Of a rate: so many in each such span (1s, 1m).")
@click.option("--burst", type=click.IntRange(min=1), help="Of a rate: so many at once, after a pause.")
@KEY
@KIND
@click.pass_obj
def set_limit(
    session: Session, scope: str, limit: int, per: str | None, burst: int | None, key: str | None, kind: str | None
) -> None:
    """Let SCOPE allow LIMIT from now on, instead of what is registered, until `penstock limit reset`.

    It kills nobody. 0 lets nothing begin. Without --key it is for all keys, also those to come.
    """
    if burst is not None and per is None:
        raise click.UsageError("--burst goes with --per")
    found = session.client().set_limit(scope, limit, per=per, burst=burst, key=key, kind=kind)
    output.show(found, lambda: click.echo(_allows(found)))


@limit.command()
@SCOPE
@KEY
@KIND
@click.pass_obj
def reset(session: Session, scope: str, key: str | None, kind: str | None) -> None:
    """Let what is registered for SCOPE count again."""
    found = session.client().reset_limit(scope, key=key, kind=kind)
    output.show(found, lambda: click.echo(_allows(found)))


def _row(one: LimitView) -> tuple[str, ...]:
    in_use = str(one.holders_total) if one.tokens is None else f"{one.tokens:g} left"
    overridden = "-" if one.override is None else one.override.by or "yes"
    key = "-" if one.key is None else one.key
    return one.scope, one.kind, key, _allowed(one.limit, one.rate_limit), in_use, str(one.waiting_total), overridden


def _describe(one: LimitView) -> None:
    output.fields(
        [
            ("scope", one.scope),
            ("kind", one.kind),
            ("key", one.key or ""),
            ("allowed", _allowed(one.limit, one.rate_limit)),
            ("overridden", _overridden(one)),
            ("in use", "" if one.tokens is not None else str(one.holders_total)),
            ("tokens left", "" if one.tokens is None else f"{one.tokens:g}"),
            ("next token", "" if one.next_at is None else times.moment(one.next_at)),
            ("waiting", str(one.waiting_total)),
            *((f"registered by {other.workflow}", _allowed(other.limit, other.rate_limit)) for other in one.registered),
        ]
    )
    if one.holders:
        click.echo("\nholders")
        output.table(WHO, ((who.run_id, who.step_id or "-", times.age(who.since)) for who in one.holders[:SHOWN]))
        _rest(one.holders_total)
    if one.waiting:
        click.echo("\nwaiting")
        output.table(
            WAITING,
            ((str(who.place), who.run_id, who.step_id or "-", str(who.priority)) for who in one.waiting[:SHOWN]),
        )
        _rest(one.waiting_total)
    if one.keys:
        click.echo("\nbusiest keys")
        keys = ((found.key, str(found.holders_total), str(found.waiting_total)) for found in one.keys[:SHOWN])
        output.table(("KEY", "IN USE", "WAITING"), keys)


def _rest(total: int) -> None:
    if total > SHOWN:
        click.echo(f"and {total - SHOWN} more")


def _allows(one: LimitView) -> str:
    of_key = "" if one.key is None else f" key {output.printable(one.key)}"
    state = "overridden" if one.override is not None else "as registered"
    return f"{one.scope}{of_key} allows {_allowed(one.limit, one.rate_limit)} ({state})"


def _overridden(one: LimitView) -> str:
    found = one.override
    if found is None:
        return ""
    by = "" if found.by is None else f" by {found.by}"
    return f"since {times.moment(found.at)}{by}{', for all keys' if one.key is not None and found.key is None else ''}"


def _allowed(limit: int, rate: RateView | None) -> str:
    if rate is None:
        return str(limit)
    return f"{limit} in {rate.per}" + ("" if rate.burst is None else f", burst {rate.burst}")
