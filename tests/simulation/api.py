"""The stream API of the simulated broker: what it answers to each request that the service makes."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.broker import names
from penstock.broker.nats.errors import Code
from tests.simulation.clock import EPOCH
from tests.simulation.consumers import Consumer, Reader
from tests.simulation.followers import Follower
from tests.simulation.streams import Message, Refused, Stream, matches, stamp

if TYPE_CHECKING:
    from tests.simulation.client import Item
    from tests.simulation.server import Server

NS = 10**9
NOT_FOUND = Refused(404, Code.MESSAGE_NOT_FOUND, "no message found")
NO_STREAM = Refused(404, Code.STREAM_NOT_FOUND, "stream not found")
NO_CONSUMER = Refused(404, Code.CONSUMER_NOT_FOUND, "consumer not found")


def answer_of(server: Server, parts: list[str], request: dict[str, Any]) -> Refused | dict[str, Any] | None:
    """None: the broker says nothing at all."""
    if parts == ["INFO"]:
        return {"storage": 0, "limits": {"max_storage": -1}}
    if parts[:2] == ["STREAM", "CREATE"]:
        return _info(server, server.make(request), {})
    stream = server.streams.get(parts[3] if parts[:2] == ["STREAM", "MSG"] else parts[2])
    if stream is None:
        return NO_STREAM
    match parts:
        case ["STREAM", "INFO", _]:
            return _info(server, stream, request)
        case ["STREAM", "PURGE", _]:
            before = request.get("seq") or None  # 0 is everything, as without one
            return {"success": True, "purged": server.purge(stream, request["filter"], before)}
        case ["STREAM", "MSG", "GET", _]:
            return _get(stream, request)
        case ["STREAM", "MSG", "DELETE", _]:
            if request["seq"] not in stream.messages:
                return _not_there(stream, request["seq"])
            server.remove(stream, request["seq"])
            return {"success": True}
        case ["CONSUMER", "CREATE", _]:
            return create_reader(server, stream, request["config"])
        case ["CONSUMER", "CREATE", _, name, *_] if "filter_subjects" in request["config"]:
            server.followers[name] = Follower(server, name, stream, request["config"])
            return {"name": name, "config": request["config"]}
        case ["CONSUMER", "DELETE", _, name] if name in server.followers:
            del server.followers[name]
            return {"success": True}
        case ["CONSUMER", "CREATE", _, name, *_]:
            return create_consumer(server, name, request["config"])
        case ["CONSUMER", "NAMES", name]:
            listed = server.sticky_consumers() if name == names.STICKY else list(server.consumers)
            return {"total": len(listed), "consumers": listed[request.get("offset", 0) :]}
        case ["CONSUMER", "RESET", _, name] if name not in server.consumers:
            return None
        case ["CONSUMER", _, _, name] if name not in server.consumers:
            return NO_CONSUMER
        case ["CONSUMER", "INFO", _, name]:
            return {**server.consumers[name].progress(), "ts": _now(server)}
        case ["CONSUMER", "DELETE", _, name]:
            del server.consumers[name]
            return {"success": True}
        case ["CONSUMER", "RESET", _, name]:
            server.consumers[name].reset(request["seq"])
            return {"reset_seq": request["seq"]}
        case _:
            raise AssertionError(f"the simulated broker does not know {'.'.join(parts)}")


def create_consumer(server: Server, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """One that is there stays as it is."""
    if name not in server.consumers:
        start, lasting = config.get("opt_start_seq", 1), not config.get("mem_storage")
        server.consumers[name] = Consumer(
            server, name, config["filter_subject"], config["ack_wait"] / NS, start, lasting=lasting
        )
    return {"name": name, "config": config}


def create_reader(server: Server, stream: Stream, config: dict[str, Any]) -> dict[str, Any]:
    """One without a name, which the broker makes up."""
    server.readers_made += 1
    name, forget_after_s = f"reader{server.readers_made}", config["inactive_threshold"] / NS
    server.readers[name] = Reader(server, name, stream, config["opt_start_seq"], forget_after_s)
    return {"name": name, "config": config}


def _not_there(stream: Stream, seq: int) -> Refused:
    """As the broker says it: outside of what the stream has, as if it were in trouble."""
    if seq > stream.last_seq:
        return Refused(500, Code.DELETE_FAILED, "stream store EOF")
    if not stream.messages or seq < next(iter(stream.messages)):
        return Refused(500, Code.DELETE_FAILED, "no message found")
    return Refused(400, Code.SEQUENCE_NOT_FOUND, f"sequence {seq} not found")


def _info(server: Server, stream: Stream, request: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(stream.messages), stream.last_seq + 1)
    state: dict[str, Any] = {
        "messages": len(stream.messages),
        "bytes": 0,
        "first_seq": first,
        "last_seq": stream.last_seq,
        "last_ts": stamp(stream.last_ns),
    }
    if "subjects_filter" in request:
        state["subjects"] = {
            subject: len(seqs)
            for subject, seqs in stream.subjects.items()
            if matches(request["subjects_filter"], subject)
        }
    return {
        "created": stamp(int(EPOCH) * NS),
        "state": state,
        "config": {"num_replicas": 1},
        "ts": _now(server),
    }


def _now(server: Server) -> str:
    return stamp(int(server.wall * 1e6) * 1000)


def _get(stream: Stream, request: dict[str, Any]) -> Refused | dict[str, Any]:
    if "last_by_subj" in request:
        found = stream.matching(request["last_by_subj"])[-1:]
    elif "next_by_subj" in request:
        found = stream.matching(request["next_by_subj"], request["seq"])[:1]
    else:
        found = [stream.messages[request["seq"]]] if request["seq"] in stream.messages else []
    if not found:
        return NOT_FOUND
    one = found[0]
    encoded = base64.b64encode(one.data).decode()
    headers = {"hdrs": base64.b64encode(one.own_headers).decode()} if one.headers else {}
    return {"message": {"subject": one.subject, "seq": one.seq, "data": encoded, "time": stamp(one.at_ns), **headers}}


def read_directly(stream: Stream, request: dict[str, Any]) -> list[Item]:
    if "batch" not in request and "multi_last" not in request:
        one = _one(stream, request)
        return (
            [(b"", b"", b"", b"NATS/1.0 404 Message Not Found\r\n\r\n")]
            if one is None
            else [(b"", b"", one.data, one.head() + b"\r\n")]
        )
    if "multi_last" in request:
        found, left = stream.last_of(request["multi_last"]), 0
    else:
        found = stream.matching(request["next_by_subj"], _first_seq(stream, request))
        left = max(0, len(found) - request["batch"])
        found = found[: request["batch"]]
    if not found:
        return [(b"", b"", b"", b"NATS/1.0 404 Message Not Found\r\n\r\n")]
    items = [(b"", b"", one.data, one.head() + b"Nats-Num-Pending: 0\r\n\r\n") for one in found]
    return [*items, (b"", b"", b"", b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\n\r\n" % left)]


def _one(stream: Stream, request: dict[str, Any]) -> Message | None:
    if "last_by_subj" in request:
        return stream.last(request["last_by_subj"])
    if "next_by_subj" in request:
        return next(iter(stream.matching(request["next_by_subj"], request["seq"])), None)
    return stream.messages.get(request["seq"])


def _first_seq(stream: Stream, request: dict[str, Any]) -> int:
    if "seq" in request:
        return int(request["seq"])
    since_ns = int(datetime.fromisoformat(request["start_time"]).timestamp() * 1e6) * 1000
    return next((seq for seq, one in stream.messages.items() if one.at_ns >= since_ns), stream.last_seq + 1)
