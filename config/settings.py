"""The settings tree, and how it is made: flag > environment > file > default, merged as plain dicts, converted once.

An unknown key or a bad value raises SettingsError, one line that names the key, the value, its origin and what is
allowed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from penstock.config import limits
from penstock.config.errors import SettingsError as SettingsError
from penstock.config.keys import KEYS, Key, hide_passwords

FILE_DEFAULT = Path("penstock.toml")
FILE_VARIABLE = "SERVICE_CONFIG"
VALUE_CHARS_MAX = 200  # of a bad value, in an error
# Set for the command line, in the same environment: no settings of the service.
SOURCES_VARIABLE = "SERVICE_SOURCES"  # set by `to_environ`: where the values of a child process came from
VARIABLES_OF_OTHERS = frozenset({"SERVICE_URL", FILE_VARIABLE, SOURCES_VARIABLE})
# Of the extra `otel`.
OTLP_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
# The second means nothing without the first.
NEEDS = (
    ("broker_user", "broker_password"),
    ("broker_password", "broker_user"),
    ("broker_tls_cert", "broker_tls_key"),
    ("broker_tls_key", "broker_tls_cert"),
    ("leaf_credentials", "leaf_remotes"),
    ("otlp_headers", "otlp_endpoint"),
)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class Address(Struct, frozen=True):
    """`host` without brackets; the text form has them around an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BrokerSettings(Struct, frozen=True):
    """Ages are in seconds; `nkey_seed`, `credentials` and `tls_*` are paths; `url` None means the embedded broker."""

    url: str | None = None
    port: int = 4222
    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey_seed: str | None = None
    credentials: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    data_dir: str = "penstock-data"
    monitor_port: int = 0
    max_store_bytes: int = limits.STORE_BYTES_DEFAULT
    fsync: Literal["interval", "always"] = "interval"
    leaf_remotes: tuple[str, ...] = ()
    leaf_credentials: str | None = None
    replicas: int = 1
    history_max_age: float | None = None
    history_max_bytes: int | None = None
    runs_max_age: float | None = None
    archive_after: float | None = None

    @property
    def own_url(self) -> str:
        """Where the embedded broker listens."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def embedded(self) -> bool:
        """Whether the broker is the service's own. Its child processes get its address as `url`."""
        return self.url in (None, self.own_url)


class EngineSettings(Struct, frozen=True):
    """`builtin_workers` are those that `penstock serve` runs."""

    shards: int = msgspec.field(default_factory=lambda: min(max(1, _cores() - 1), limits.PARTITIONS))
    builtin_workers: tuple[Literal["http"], ...] = ()


class HttpTaskSettings(Struct, frozen=True):
    """Of the worker of http steps. `allow` as config/allowed_hosts.py reads it; `secrets_dir` has a file for each
    secret."""

    allow: tuple[str, ...] = ()
    slots: int = limits.HTTP_SLOTS_DEFAULT
    secrets_dir: str | None = None


class HttpSettings(Struct, frozen=True):
    listen: Address = Address("0.0.0.0", 8080)  # noqa: S104 - the promised default is every IPv4 address
    workers: int = msgspec.field(default_factory=lambda: max(1, _cores() // 2))
    api_token: str | None = None
    insecure: bool = False
    cors_origins: tuple[str, ...] = ()
    bridge_token: str | None = None
    webhook_secret: str | None = None

    @property
    def mode(self) -> Literal["token", "insecure", "protected"]:
        """Who may use the control plane: holders of the token, everyone, or only this machine."""
        if self.api_token:
            return "token"
        return "insecure" if self.insecure else "protected"


class LogSettings(Struct, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class TelemetrySettings(Struct, frozen=True):
    """`otlp_endpoint` None: nothing is exported. `otlp_headers` are names and values."""

    sample_ratio: float = 0.01
    otlp_endpoint: str | None = None
    otlp_headers: tuple[tuple[str, str], ...] = ()


class Settings(Struct, frozen=True):
    """Each part of the service receives its own section, never the whole tree."""

    broker: BrokerSettings = BrokerSettings()
    engine: EngineSettings = msgspec.field(default_factory=EngineSettings)
    http: HttpSettings = msgspec.field(default_factory=HttpSettings)
    http_tasks: HttpTaskSettings = HttpTaskSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()


class Loaded(NamedTuple):
    """`sources` has the origin of every value: flag, environment NAME, file PATH or default."""

    settings: Settings
    sources: Mapping[str, str]


class _Given(NamedTuple):
    value: object
    source: str


def load(flags: Mapping[str, str] = {}, environ: Mapping[str, str] = os.environ, file: Path | None = None) -> Loaded:
    """Merge all layers. `flags` go by key name; without `file`, SERVICE_CONFIG or ./penstock.toml is read.

    Raises SettingsError, also for a file that is named and cannot be read. SERVICE_CONFIG set to nothing means no file.
    """
    given = {**_from_file(_file(file, environ)), **_from_environ(environ), **_from_flags(flags)}
    settings = msgspec.convert(_tree(given), Settings)
    _check(settings, given)
    inherited = _inherited(environ)
    return Loaded(settings, inherited or {name: given[name].source if name in given else "default" for name in KEYS})


def to_environ(settings: Settings, sources: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every effective value, for a child process: there `load` returns these settings again, whatever files exist, and
    these `sources`."""
    known = {} if sources is None else {SOURCES_VARIABLE: msgspec.json.encode(sources).decode()}
    return {FILE_VARIABLE: "", **{key.variable: key.text(value_of(settings, key)) for key in KEYS.values()}, **known}


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Where the process that has started this one had its values from; empty when none has said so."""
    try:
        return msgspec.json.decode(environ.get(SOURCES_VARIABLE, "{}"), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise SettingsError(f"{SOURCES_VARIABLE} is set by the service for its own processes: remove it") from error


def value_of(settings: Settings, key: Key) -> object:
    value: object = getattr(getattr(settings, key.section), key.field)
    return value


def _file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    named = environ.get(FILE_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    return FILE_DEFAULT if FILE_DEFAULT.exists() else None


def _from_file(path: Path | None) -> dict[str, _Given]:
    if path is None:
        return {}
    names = {name: name for name in KEYS}
    return {_key(name, names, f"file {path}"): _Given(value, f"file {path}") for name, value in _read(path).items()}


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"file {path} is not TOML: {error}") from error


def _from_environ(environ: Mapping[str, str]) -> dict[str, _Given]:
    names = {key.variable: key.name for key in KEYS.values()}
    ours = {
        name: value
        for name, value in environ.items()
        if name.startswith("SERVICE_") and name not in VARIABLES_OF_OTHERS
    }
    return {_key(name, names, "environment"): _Given(value, f"environment {name}") for name, value in ours.items()}


def _from_flags(flags: Mapping[str, str]) -> dict[str, _Given]:
    names = {name: name for name in KEYS}
    return {_key(name, names, "flag"): _Given(value, "flag") for name, value in flags.items()}


def _key(name: str, names: Mapping[str, str], source: str) -> str:
    """The key that goes by `name` in this layer. The value is not in the error: it may be a secret under a misspelt
    name."""
    if name in names:
        return names[name]
    close = get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise SettingsError(f"unknown setting {name!r} ({source}): {hint}allowed are {', '.join(names)}")


def _tree(given: Mapping[str, _Given]) -> dict[str, dict[str, object]]:
    tree: dict[str, dict[str, object]] = {}
    for name, (value, source) in given.items():
        key = KEYS[name]
        tree.setdefault(key.section, {})[key.field] = _parsed(key, value, source)
    return tree


def _parsed(key: Key, value: object, source: str) -> object:
    try:
        return key.kind.parse(value)
    except ValueError:  # its text may hold a secret
        raise _refused(key, value, source, key.kind.allowed) from None


def _refused(key: Key, value: object, source: str, allowed: str) -> SettingsError:
    shown = "(hidden)" if key.secret else hide_passwords(repr(value)[:VALUE_CHARS_MAX])
    return SettingsError(f"{key.name} = {shown} ({source}) is not allowed: it must be {allowed}")


def _check(settings: Settings, given: Mapping[str, _Given]) -> None:
    """Raise SettingsError for keys that do not go together."""
    for name, needed in NEEDS:
        if value_of(settings, KEYS[name]) and not value_of(settings, KEYS[needed]):
            raise _refused(KEYS[name], *given[name], f"set together with {needed}")
    if settings.broker.replicas > 1 and settings.broker.url is None:
        raise _refused(KEYS["replicas"], *given["replicas"], "1 for the embedded broker (more needs broker_url)")
    if settings.telemetry.otlp_endpoint and not _can_export():
        needs = "left out, or its extra be installed: pip install 'penstock[otel]'"
        raise _refused(KEYS["otlp_endpoint"], *given["otlp_endpoint"], needs)


def _can_export() -> bool:
    """Whether the SDK that exports telemetry is installed. It is not loaded yet."""
    try:
        return all(find_spec(name) for name in OTLP_MODULES)
    except ModuleNotFoundError:  # of a package above it
        return False
