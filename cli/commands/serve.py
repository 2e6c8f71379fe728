"""`penstock serve`, `engine` and `api`: which processes make up each of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import FrameType
from uuid import uuid4

import click
import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, wait_fixed

from penstock.actors.processes.broker_memory import BrokerMemory
from penstock.actors.processes.children import run_services, run_shard, run_triggers
from penstock.actors.processes.forked import ForkedChild
from penstock.actors.processes.storage_guard import BROKER, StorageGuard
from penstock.actors.processes.supervisor import Child, Process, Supervisor
from penstock.actors.telemetry.relay import Relay
from penstock.broker.embedded.child_program import ChildProgram
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.nats.connection import address, connect
from penstock.broker.streams.provisioning import provision
from penstock.cli.terminal.browser import console_url
from penstock.cli.terminal.options import settings_options
from penstock.config.limits import HTTP_SHUTDOWN_S, SHUTDOWN_S
from penstock.config.log_setup import configure
from penstock.config.logging import get_logger
from penstock.config.process.memory import uncollected
from penstock.config.process.notice import Notice
from penstock.config.process.ports import trouble
from penstock.config.settings import Address, BrokerSettings, Loaded, Settings, load, to_environ
from penstock.engine.errors import Conflict, Invalid, Unavailable

READY_POLL_S = 0.02
# gunicorn ends its processes itself, whatever hangs: killed earlier, it would leave them behind
HTTP_GRACE_S = HTTP_SHUTDOWN_S + 0.5
WORKER_GRACE_S = HTTP_SHUTDOWN_S - 1.0  # then it gives back what is left
ENGINE_GRACE_S = 6.0
BROKER_GRACE_S = 3.0
PROVISION_S_MAX = 30.0  # a cluster that is just starting takes seconds to agree on a leader

log = get_logger()


@click.command()
@settings_options
def serve(flags: dict[str, str], config: Path | None) -> None:
    """Run the whole service: embedded broker (unless broker_url is set), engine and HTTP."""
    settings, sources = _settings(flags, config)
    _check_http_port(settings)
    broker = None if settings.broker.url else EmbeddedBroker(settings.broker)
    started_at, relay, notice = time.monotonic(), Relay(), Notice()
    try:
        children = []
        if broker is not None:
            broker.start()
            _warn_if_open(settings.broker)
            settings = _on(settings, broker.url)
            children.append(_broker_child(broker, settings.broker))
        _provision(settings.broker)
        children += [
            *_shards(settings, None),
            _services_child(settings, relay, triggers=True),
            *_api_children(settings, sources, notice),
            *(_worker_child(settings, name) for name in settings.engine.builtin_workers),
        ]
        supervisor = Supervisor(children, SHUTDOWN_S, relay)
        guards = [] if broker is None else _guards(broker, settings.broker, notice, supervisor)
        supervisor.run(_watch_ready(settings, started_at), *guards)
    finally:
        if broker is not None:
            broker.stop()


@click.command()
@settings_options
def engine(flags: dict[str, str], config: Path | None) -> None:
    """Run the shards and the triggers against an external broker (broker_url)."""
    settings, _ = _settings(flags, config)
    _need_url(settings)
    _provision(settings.broker)
    relay = Relay()
    Supervisor([*_shards(settings, relay), _forked("triggers", run_triggers, settings)], SHUTDOWN_S, relay).run()


@click.command()
@settings_options
def api(flags: dict[str, str], config: Path | None) -> None:
    """Run the HTTP front end and its run index against an external broker (broker_url)."""
    settings, sources = _settings(flags, config)
    _need_url(settings)
    _check_http_port(settings)
    _provision(settings.broker)
    relay = Relay()
    Supervisor(
        [_services_child(settings, relay, triggers=False), *_api_children(settings, sources, None)], SHUTDOWN_S, relay
    ).run()


def _settings(flags: dict[str, str], config: Path | None) -> Loaded:
    loaded = load(flags, file=config)
    configure(loaded.settings.log, "serve")
    signal.signal(signal.SIGTERM, _leave)  # until the supervisor takes it over
    return loaded


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process while it starts: what was started is ended by its context managers."""
    sys.exit(0)


def _warn_if_open(settings: BrokerSettings) -> None:
    if settings.leaf_remotes and not (settings.user or settings.token):
        log.warning(
            "broker_open_to_all",
            port=settings.port,
            hint="as a leaf it listens on every address: set broker_user and broker_password",
        )


def _need_url(settings: Settings) -> None:
    if not settings.broker.url:
        raise Invalid(
            "broker_url is not set: this command works with an external broker (`penstock serve` brings its own)"
        )


def _check_http_port(settings: Settings) -> None:
    """Before anything else: whoever has the port would answer in our place, also that it is ready. Raises Conflict."""
    problem = trouble("the HTTP port", settings.http.listen.host, settings.http.listen.port)
    if problem:
        raise Conflict(problem)


def _on(settings: Settings, url: str) -> Settings:
    return msgspec.structs.replace(settings, broker=msgspec.structs.replace(settings.broker, url=url))


def _provision(settings: BrokerSettings) -> None:
    """Make every stream, as soon as there is a broker that can. Raises Denied, Conflict, Unavailable."""
    asyncio.run(_UNTIL_AVAILABLE(_provision_once, settings))
    log.info("broker_ready", url=address(settings))


async def _provision_once(settings: BrokerSettings) -> None:
    async with connect(settings, "provisioning") as broker:
        await provision(broker, settings)


def _log_wait(state: RetryCallState) -> None:
    log.warning("waiting_for_broker", reason=str(state.outcome.exception()) if state.outcome else "")


_UNTIL_AVAILABLE = AsyncRetrying(
    retry=retry_if_exception_type(Unavailable),
    wait=wait_fixed(0.5),
    stop=stop_after_delay(PROVISION_S_MAX),
    before_sleep=_log_wait,
    reraise=True,
)


def _guards(
    broker: EmbeddedBroker, settings: BrokerSettings, notice: Notice, supervisor: Supervisor
) -> list[Callable[[], float | None]]:
    """What looks after the embedded broker."""
    storage = StorageGuard(broker, settings, notice, supervisor.restart)
    return [storage.watch, BrokerMemory(broker, settings).watch]


def _broker_child(broker: EmbeddedBroker, settings: BrokerSettings) -> Child:
    """It runs already; the supervisor starts it again when it dies, in an empty directory with all streams made
    anew."""
    bare = False

    def start() -> Process:
        nonlocal bare
        if not broker.running:
            broker.data.check()
            bare = bare or broker.data.empty
            broker.start()
        if bare:
            asyncio.run(_provision_once(settings))
            bare = False
        assert broker.command is not None
        return broker.command

    return Child(BROKER, start, stage=2, grace_s=BROKER_GRACE_S)


def _shards(settings: Settings, relay: Relay | None) -> list[Child]:
    """One engine. The first of them has the supervisor's relay, if it is given."""
    relays, name = [relay, *[None] * (settings.engine.shards - 1)], uuid4().hex
    return [
        _forked(f"shard-{number}", run_shard, settings, number, name, one, relay=one)
        for number, one in enumerate(relays)
    ]


def _services_child(settings: Settings, relay: Relay, *, triggers: bool) -> Child:
    return _forked("services", run_services, settings, relay, triggers, relay=relay)


def _forked(name: str, target: Callable[..., None], *arguments: object, relay: Relay | None = None) -> Child:
    inherited = relay.descriptors if relay else ()
    return Child(name, lambda: ForkedChild(name, target, arguments, inherited), stage=1, grace_s=ENGINE_GRACE_S)


def _api_children(settings: Settings, sources: Mapping[str, str], notice: Notice | None) -> list[Child]:
    """gunicorn, with every effective setting in its environment, and the descriptor of the supervisor's notice on the
    storage."""
    with uncollected():  # here, for an engine needs none of it
        from penstock.http.front_end import run_front_end
    environ = {**to_environ(settings, sources), **(notice.environ if notice else {})}
    inherited = [notice.descriptor] if notice else []

    def start() -> Process:
        _check_http_port(settings)
        return ForkedChild("http", run_front_end, (environ,), inherited)

    return [Child("http", start, stage=0, grace_s=HTTP_GRACE_S)]


def _worker_child(settings: Settings, name: str) -> Child:
    """A built-in worker, as `penstock worker NAME` runs it; every effective setting is in its environment."""
    arguments = [sys.executable, "-m", "penstock.cli.main", "worker", name, "--grace", str(WORKER_GRACE_S)]
    environ = {**os.environ, **to_environ(settings)}
    return Child(f"{name}-worker", lambda: ChildProgram(arguments, environ), stage=0, grace_s=HTTP_GRACE_S)


def _watch_ready(settings: Settings, started_at: float) -> Callable[[], float | None]:
    """Ask /ready until it says yes, and log that once."""
    ready = False

    def step() -> float | None:
        nonlocal ready
        if not ready and _is_ready(settings):
            ready = True
            _say_ready(settings, time.monotonic() - started_at)
        return None if ready else READY_POLL_S

    return step


def _say_ready(settings: Settings, seconds: float) -> None:
    """Log it with the address of the console, as it is on this machine; on a terminal also as a line of its own."""
    console = console_url(f"http://{_local(settings.http.listen)}")
    log.info("ready", listen=str(settings.http.listen), console=console, seconds=round(seconds, 2))
    if sys.stderr.isatty():
        click.echo(f"\nThe console: {console}\n", err=True)


def _local(listen: Address) -> Address:
    """Where a service that listens there is reached on this machine."""
    return Address("127.0.0.1", listen.port) if listen.host in ("0.0.0.0", "::") else listen  # noqa: S104


def _is_ready(settings: Settings) -> bool:
    at = _local(settings.http.listen)
    connection = HTTPConnection(at.host, at.port, timeout=1)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
