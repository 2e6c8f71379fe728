"""A front end whose process was held up answers what has come meanwhile."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack

from penstock.config.settings import BrokerSettings
from tests.support.frontends import FrontEnd

KEEP_ALIVE_S = 1
CONNECTIONS = 20
REQUEST = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"


def _answer(connection: socket.socket) -> bytes:
    return connection.recv(12)


def test_requests_that_came_in_time_are_answered_by_a_process_that_was_held_up(
    broker_settings: BrokerSettings,
) -> None:
    """Its timers for idle connections are overdue before it has read anything."""
    end = FrontEnd(broker_settings, None, "--keep-alive", str(KEEP_ALIVE_S))
    with ExitStack() as stack:
        stack.callback(end.stop)
        end.await_start()
        address = ("127.0.0.1", int(end.url.rpartition(":")[2]))
        connections = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.sendall(REQUEST)
            assert b"HTTP/1.1 404" == _answer(connection)
        end.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        for connection in connections:
            connection.sendall(REQUEST)
        while time.monotonic() - begin <= KEEP_ALIVE_S + 0.2:  # what must pass is time itself: the timers' own
            time.sleep(0.02)
        end.send_signal(signal.SIGCONT)
        for connection in connections:
            rest = b""
            while rest.count(b"HTTP/1.1 404") < 1:
                part = connection.recv(65536)
                assert part, "closed without an answer"
                rest += part
