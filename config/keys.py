"""The table of settings: one row per key, from which TOML, `SERVICE_<KEY>`, flags, docs and `penstock config` come.

A value arrives as TOML gives it (integer, text, list) or as text (environment, flag). Empty text means that an optional
key is not set, whatever a lower layer says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from penstock.config import limits, units
from penstock.config.allowed_hosts import allowed_host

OTLP_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/,?#@*]+")
BUILTIN_WORKERS = ("http",)
SWITCH_WORDS = {"true": True, "1": True, "false": False, "0": False}

Parse = Callable[[object], object]


class ValueKind(NamedTuple):
    """`parse` raises ValueError for what `allowed` does not cover; `text` writes a value so that `parse` reads it
    back."""

    parse: Parse
    allowed: str
    text: Callable[[Any], str] = str


class Key(NamedTuple):
    """`section` and `field` say where in the settings tree the value goes."""

    name: str
    section: str
    field: str
    kind: ValueKind
    help: str
    secret: bool = False

    @property
    def variable(self) -> str:
        return f"SERVICE_{self.name.upper()}"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def text(self, value: object) -> str:
        return "" if value is None else self.kind.text(value)

    def shown(self, value: object) -> str:
        """`text` for people: secrets and passwords inside addresses hidden."""
        if self.secret:
            return "(set)" if value not in (None, "") else ""
        return hide_passwords(self.text(value))


def hide_passwords(text: str) -> str:
    """Replace what stands before the `@` of each address in a comma-separated list."""
    return ",".join(
        re.sub(r"^([^@]*?://)?.*@", r"\1***@", part, flags=re.DOTALL) for part in re.split(r",(?=[a-z-]+://)", text)
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(value)
    return value


def _integer(least: int, most: int) -> Parse:
    def parse(value: object) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value, re.ASCII) else value
        if type(number) is not int or not least <= number <= most:
            raise ValueError(value)
        return number

    return parse


def _ratio(value: object) -> float:
    text = isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,12})?", value, re.ASCII)
    if not text and type(value) not in (int, float):
        raise ValueError(value)
    ratio = float(str(value))
    if not 0 <= ratio <= 1:
        raise ValueError(value)
    return ratio


def _size(value: object) -> int:
    size = units.parse_size(value) if isinstance(value, str) else value
    if type(size) is not int or not 0 < size < 2**63:
        raise ValueError(value)
    return size


def _duration(least_s: float) -> Parse:
    def parse(value: object) -> float:
        seconds = units.parse_duration(_text(value))
        if not least_s <= seconds < 2**63 / 1e9:  # the broker counts in 64-bit nanoseconds
            raise ValueError(value)
        return seconds

    return parse


def _choice(*words: str) -> ValueKind:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(value)
        return str(value)

    return ValueKind(parse, " or ".join(words))


def _listen(value: object) -> Mapping[str, object]:
    """`host` as a plain address or name, without brackets."""
    host, separator, port = _text(value).rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (
        not separator
        or (":" in bare and (bare == host or ip_address(bare).version != 6))
        or re.search(r"[\s/\[\]]", bare)
    ):
        raise ValueError(value)
    return {"host": bare or "0.0.0.0", "port": _integer(1, 65535)(port)}  # noqa: S104 - `:8080` is promised to mean every address


def _addresses(schemes: frozenset[str]) -> Callable[[object], tuple[str, ...]]:
    def parse(value: object) -> tuple[str, ...]:
        parts = value if isinstance(value, list) else _text(value).split(",")
        addresses = tuple(_text(part).strip() for part in parts)
        if not all(_is_address(address, schemes) for address in addresses):
            raise ValueError(value)
        return addresses

    return parse


def _is_address(text: str, schemes: frozenset[str]) -> bool:
    scheme, separator, rest = text.rpartition("://")
    return bool(rest) and not re.search(r"\s", text) and (not separator or scheme in schemes)


def _broker_url(value: object) -> str:
    return ",".join(_addresses(frozenset({"nats", "tls"}))(value))


def _leaf_remotes(value: object) -> tuple[str, ...]:
    if value in ("", []):
        return ()
    addresses = _addresses(frozenset({"nats", "tls", "nats-leaf", "ws", "wss"}))(value)
    if len(addresses) > limits.LEAF_REMOTES_MAX:
        raise ValueError(value)
    return addresses


def _optional(kind: ValueKind) -> ValueKind:
    def parse(value: object) -> object:
        return None if value == "" else kind.parse(value)

    return ValueKind(parse, f"{kind.allowed}, or empty for none", kind.text)


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in SWITCH_WORDS:
        raise ValueError(value)
    return SWITCH_WORDS[value.lower()]


def _origins(value: object) -> tuple[str, ...]:
    """As browsers send them in `Origin`: lower case, no path, no slash at the end."""
    parts = value if isinstance(value, list) else [part for part in str(value).split(",") if value]
    origins = tuple(_text(part).strip().lower() for part in parts)
    if not all(ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError(value)
    return origins


def _parts(value: object) -> list[object]:
    """The entries of a list, which text gives comma-separated; empty text is none."""
    if value == "":
        return []
    return value if isinstance(value, list) else list(_text(value).split(","))


def _allowed_hosts(value: object) -> tuple[str, ...]:
    entries = tuple(_text(part).strip().lower() for part in _parts(value))
    if len(entries) > limits.HTTP_ALLOW_MAX:
        raise ValueError(value)
    for entry in entries:
        allowed_host(entry)
    return entries


def _otlp_address(value: object) -> str:
    text = _text(value)
    if not OTLP_ADDRESS.fullmatch(text):
        raise ValueError(value)
    return text


def _header_pairs(value: object) -> tuple[tuple[str, str], ...]:
    """As OTEL_EXPORTER_OTLP_HEADERS has them; what a value could not hold there is percent-encoded."""
    pairs = []
    for part in _parts(value):
        name, separator, text = _text(part).partition("=")
        given = unquote(text.strip(), errors="strict")
        if not separator or not HEADER_NAME.fullmatch(name.strip()) or not (given.isascii() and given.isprintable()):
            raise ValueError(value)
        pairs.append((name.strip().lower(), given))
    return tuple(pairs)


def _header_text(pairs: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f"{name}={quote(value)}" for name, value in pairs)


def _builtin_workers(value: object) -> tuple[str, ...]:
    names = [_text(part).strip() for part in _parts(value)]
    if any(name not in BUILTIN_WORKERS for name in names):
        raise ValueError(value)
    return tuple(dict.fromkeys(names))


TEXT = ValueKind(_text, "text without control characters")
PATH = ValueKind(_text, "a path")
PORT = ValueKind(_integer(1, 65535), "a port, 1 to 65535")
PORT_OR_OFF = ValueKind(_integer(0, 65535), "a port, 1 to 65535, or 0 for off")
SIZE = ValueKind(_size, "a size such as 10GiB, 500MB or a number of bytes", units.format_size)
RATIO = ValueKind(_ratio, "a number from 0 to 1", lambda ratio: f"{ratio:.12f}".rstrip("0").rstrip("."))
HISTORY_AGE = ValueKind(
    _duration(limits.DEDUP_WINDOW_S), "a duration such as 30d, 24h or 90m, at least 5s", units.format_duration
)
RUNS_AGE = ValueKind(_duration(1.0), "a duration such as 30d, 24h or 90m, at least 1s", units.format_duration)
LISTEN = ValueKind(_listen, "HOST:PORT, or :PORT for every IPv4 address")
BROKER_URL = ValueKind(_broker_url, "nats:// or tls:// addresses, comma-separated")
SWITCH = ValueKind(_switch, "true or false", lambda on: "true" if on else "false")
ORIGINS = ValueKind(_origins, "origins such as https://console.example.org, comma-separated", ",".join)
ALLOWED_HOSTS = ValueKind(
    _allowed_hosts, "addresses, networks such as 10.0.0.0/8, HOST or HOST:PORT, comma-separated", ",".join
)
OTLP_RECEIVER = ValueKind(_otlp_address, "an address such as http://localhost:4318, without a signal's path")
HEADER_PAIRS = ValueKind(_header_pairs, "NAME=VALUE, comma-separated, values percent-encoded", _header_text)
BUILTIN = ValueKind(_builtin_workers, "http, or empty for none", ",".join)
LEAF_REMOTES = ValueKind(_leaf_remotes, f"at most {limits.LEAF_REMOTES_MAX} addresses, comma-separated", ",".join)

KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key("listen", "http", "listen", LISTEN, "Address of the HTTP server."),
        Key("data_dir", "broker", "data_dir", PATH, "Where the embedded broker keeps everything."),
        Key("broker_url", "broker", "url", _optional(BROKER_URL), "External broker; without it one is embedded."),
        Key("broker_port", "broker", "port", PORT, "Port of the embedded broker."),
        Key("broker_user", "broker", "user", _optional(TEXT), "User name at the broker."),
        Key("broker_password", "broker", "password", _optional(TEXT), "Password at the broker.", secret=True),
        Key("broker_token", "broker", "token", _optional(TEXT), "Token at the broker.", secret=True),
        Key("broker_nkey_seed", "broker", "nkey_seed", _optional(PATH), "File with the NKey seed for the broker."),
        Key(
            "broker_credentials", "broker", "credentials", _optional(PATH), "Credentials file (.creds) for the broker."
        ),
        Key(
            "broker_tls_ca", "broker", "tls_ca", _optional(PATH), "File with the authorities that vouch for the broker."
        ),
        Key("broker_tls_cert", "broker", "tls_cert", _optional(PATH), "File with our certificate for the broker."),
        Key("broker_tls_key", "broker", "tls_key", _optional(PATH), "File with the key of that certificate."),
        Key("monitor_port", "broker", "monitor_port", PORT_OR_OFF, "Monitoring port of the embedded broker."),
        Key("max_store_bytes", "broker", "max_store_bytes", SIZE, "Storage that the embedded broker may use."),
        Key(
            "fsync",
            "broker",
            "fsync",
            _choice("interval", "always"),
            "Sync to disk every second, or before each acknowledgement.",
        ),
        Key(
            "leaf_remotes",
            "broker",
            "leaf_remotes",
            LEAF_REMOTES,
            "Hub clusters that the embedded broker joins as a leaf.",
        ),
        Key(
            "leaf_credentials", "broker", "leaf_credentials", _optional(PATH), "Credentials file for the hub clusters."
        ),
        Key(
            "replicas",
            "broker",
            "replicas",
            ValueKind(_integer(1, 5), "1 to 5"),
            "Copies of each stream in an external cluster.",
        ),
        Key(
            "history_max_age",
            "broker",
            "history_max_age",
            _optional(HISTORY_AGE),
            "History older than this is dropped.",
        ),
        Key(
            "history_max_bytes",
            "broker",
            "history_max_bytes",
            _optional(SIZE),
            "Oldest history beyond this size is dropped.",
        ),
        Key("runs_max_age", "broker", "runs_max_age", _optional(RUNS_AGE), "Runs that ended longer ago are removed."),
        Key(
            "archive_after",
            "broker",
            "archive_after",
            _optional(RUNS_AGE),
            "Runs that ended longer ago are kept compressed, each as one message.",
        ),
        Key(
            "shards",
            "engine",
            "shards",
            ValueKind(_integer(1, limits.PARTITIONS), f"1 to {limits.PARTITIONS}"),
            "Engine processes.",
        ),
        Key("http_workers", "http", "workers", ValueKind(_integer(1, 256), "1 to 256"), "HTTP server processes."),
        Key(
            "api_token",
            "http",
            "api_token",
            _optional(TEXT),
            "Bearer token of the control plane; none: this machine only.",
            secret=True,
        ),
        Key("insecure", "http", "insecure", SWITCH, "Without api_token: open the control plane to everybody."),
        Key("cors_origins", "http", "cors_origins", ORIGINS, "Origins whose web pages may use the API."),
        Key(
            "bridge_token",
            "http",
            "bridge_token",
            _optional(TEXT),
            "Bearer token of the worker bridge; none: closed.",
            secret=True,
        ),
        Key(
            "webhook_secret",
            "http",
            "webhook_secret",
            _optional(TEXT),
            "Default secret of webhook triggers.",
            secret=True,
        ),
        Key("builtin_workers", "engine", "builtin_workers", BUILTIN, "Workers that `penstock serve` runs itself."),
        Key("http_allow", "http_tasks", "allow", ALLOWED_HOSTS, "What http steps may reach though it is not public."),
        Key(
            "http_slots",
            "http_tasks",
            "slots",
            ValueKind(_integer(1, limits.HTTP_SLOTS_MAX), f"1 to {limits.HTTP_SLOTS_MAX}"),
            "Requests that a worker of http steps makes at one time.",
        ),
        Key(
            "secrets_dir",
            "http_tasks",
            "secrets_dir",
            _optional(PATH),
            "Folder with a file for each secret of http steps.",
        ),
        Key("telemetry_sample_ratio", "telemetry", "sample_ratio", RATIO, "Share of the runs whose spans are written."),
        Key(
            "otlp_endpoint",
            "telemetry",
            "otlp_endpoint",
            _optional(OTLP_RECEIVER),
            "OTLP/HTTP receiver that traces, metrics and logs are exported to; none: nothing is exported.",
        ),
        Key(
            "otlp_headers",
            "telemetry",
            "otlp_headers",
            HEADER_PAIRS,
            "Headers of each request to that receiver.",
            secret=True,
        ),
        Key(
            "log_level", "log", "level", _choice("debug", "info", "warning", "error"), "Least severity that is logged."
        ),
        Key("log_format", "log", "format", _choice("console", "json"), "Log lines for people or for machines."),
    )
}
