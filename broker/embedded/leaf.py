"""The links of the embedded broker to its hubs: which are connected, and what prevents the others.

The broker reports only in its log why it cannot join a hub, and its monitoring endpoint lists only the links that are
up. One process of the service reads both, and writes the result to a file for the others.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import orjson
from msgspec import Struct

from penstock.broker.embedded.server import LOCAL, log_path, monitor_port
from penstock.config.keys import hide_passwords
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable

LEAF_PORT = 7422
MONITOR_S_MAX = 1.0
STALE_S = 15.0
LOG_TAIL_BYTES = 64 << 10
NOT_YET = "not connected yet"
UNSEEN = "the link was not checked lately"
ERROR_LINE = re.compile(r"\[ERR\] (.+)$", re.MULTILINE)
PREFIX = re.compile(r"^.*?(?:\(attempt \d+\): | - lid:\d+ - )")
QUOTED = re.compile(r"^Leafnode Error '(.*)'$")

Place = tuple[str, int]
"""Host or IP address, and port."""


class Link(Struct, frozen=True, omit_defaults=True):
    """`address` is the hub's as in the settings, without passwords. `problem` is set while the link is down."""

    address: str
    connected: bool
    problem: str | None = None


class LinkReport(Struct, frozen=True):
    """`at` is the time of the check, in s since the epoch."""

    at: float
    links: tuple[Link, ...]


def check_links(settings: BrokerSettings) -> tuple[Link, ...]:
    """The current links, in the order of the settings. Blocks. Raises Unavailable when the broker does not answer."""
    connected = _connected(settings)
    places = [_places(remote) for remote in settings.leaf_remotes]
    joined = [_take(connected, of_one) for of_one in places]
    for number, of_one in enumerate(joined):  # another node of the hub's cluster, with an unknown address
        if not of_one and connected:
            connected.pop()
            joined[number] = True
    errors = [] if all(joined) else _errors(settings)
    return tuple(
        Link(hide_passwords(remote), stands, None if stands else _problem(errors, of_one))
        for remote, of_one, stands in zip(settings.leaf_remotes, places, joined, strict=True)
    )


def write_report(settings: BrokerSettings, links: Sequence[Link]) -> None:
    """Write the result of a check, for `read_report`."""
    path = _path(settings)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(LinkReport(time.time(), tuple(links))))
    fresh.replace(path)


def read_report(settings: BrokerSettings) -> tuple[Link, ...]:
    """The links as the last check found them; all of them down when there was none lately."""
    with suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(_path(settings).read_bytes(), type=LinkReport)
        if abs(time.time() - found.at) < STALE_S:
            return found.links
    return all_down(settings, UNSEEN)


def all_down(settings: BrokerSettings, problem: str) -> tuple[Link, ...]:
    return tuple(Link(hide_passwords(remote), False, problem) for remote in settings.leaf_remotes)


def _path(settings: BrokerSettings) -> Path:
    return Path(settings.data_dir).absolute() / "leaf.json"


def _connected(settings: BrokerSettings) -> list[Place]:
    """The remote addresses of the links that are up."""
    port = monitor_port(settings)
    if port is None:
        raise Unavailable("the broker's monitoring is not up")
    connection = HTTPConnection(LOCAL, port, timeout=MONITOR_S_MAX)
    try:
        connection.request("GET", "/leafz")
        leaves = orjson.loads(connection.getresponse().read()).get("leafs") or []
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"the broker's monitoring does not answer: {error}") from error
    finally:
        connection.close()
    return [(leaf["ip"], leaf["port"]) for leaf in leaves]


def _places(remote: str) -> set[Place]:
    """The addresses that this one may mean: its host as written, and the addresses that it resolves to."""
    parts = urlsplit(remote if "://" in remote else f"nats-leaf://{remote}")
    host, port = parts.hostname or "", parts.port or LEAF_PORT
    places = {(host, port)}
    with suppress(OSError):
        places |= {(str(found[4][0]), port) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return places


def _take(connected: list[Place], places: set[Place]) -> bool:
    """Whether one of the links leads there. That one is removed from `connected`, so it counts for one address only."""
    for place in connected:
        if place in places:
            connected.remove(place)
            return True
    return False


def _errors(settings: BrokerSettings) -> list[str]:
    """Recent errors in the broker's log, newest first."""
    with suppress(OSError), log_path(settings).open("rb") as log:
        log.seek(max(0, log.seek(0, 2) - LOG_TAIL_BYTES))
        return ERROR_LINE.findall(log.read().decode(errors="replace"))[::-1]
    return []


def _problem(errors: Sequence[str], places: set[Place]) -> str:
    return next(_about(errors, places), NOT_YET)


def _about(errors: Sequence[str], places: set[Place]) -> Iterator[str]:
    """`… remote server "hub:7422" (attempt 3): dial tcp …` and `10.0.0.1:7422 - lid:8 - Leafnode Error 'Authorization
    Violation'`."""
    names = {f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in places}
    for line in errors:
        if any(name in line for name in names):
            yield QUOTED.sub(r"\1", PREFIX.sub("", line))
