"""Ports that others have: the start ends with one clear error, and nothing pretends to be ready."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.own_broker import OwnBroker, own_broker
from tests.support.service import PENSTOCK, clean_environ, free_port

GUNICORN = (sys.executable, "-m", "gunicorn", "-c", "python:penstock.config.gunicorn", "penstock.http.app:application")
END_S_MAX = 20.0

Command = Callable[[Path, OwnBroker], list[str]]


def serve(directory: Path, broker: OwnBroker) -> list[str]:
    return [PENSTOCK, "serve", f"--data-dir={directory / 'data'}", f"--broker-port={free_port()}"]


def api(directory: Path, broker: OwnBroker) -> list[str]:
    return [PENSTOCK, "api", f"--data-dir={directory / 'data'}", f"--broker-url={broker.settings.url}"]


def gunicorn(directory: Path, broker: OwnBroker) -> list[str]:
    return list(GUNICORN)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    with own_broker(tmp_path_factory.mktemp("broker")) as one:
        yield one


@pytest.fixture
def answering() -> Iterator[int]:
    """A port on which somebody takes connections; a service there would say to all who ask that it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("command", [serve, api, gunicorn])
def test_an_http_port_in_use_ends_the_start_with_one_error(
    command: Command, answering: int, broker: OwnBroker, tmp_path: Path
) -> None:
    ended = subprocess.run(
        command(tmp_path, broker),
        env={**clean_environ(), "SERVICE_LISTEN": f"127.0.0.1:{answering}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
        check=False,
    )
    said = [line for line in ended.stderr.splitlines() if str(answering) in line]
    assert [f"Error: the HTTP port {answering} on 127.0.0.1 is in use or not allowed: Address already in use"] == said
    assert ended.returncode == 1
    assert '"ready"' not in ended.stdout + ended.stderr
    assert not (tmp_path / "data" / "jetstream").exists()  # it was found out before anything began
