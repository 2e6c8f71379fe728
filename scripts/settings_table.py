"""Writes docs/settings.md out of the table of settings."""

from __future__ import annotations

from pathlib import Path

from penstock.config.keys import KEYS, Key
from penstock.config.settings import Settings, value_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"

# Defaults that depend on the machine.
DEFAULTS = {"shards": "cores - 1, at least 1", "http_workers": "half the cores, at least 1"}

HEAD = """# Settings

Every setting is a key of the configuration file (TOML), an environment variable `SERVICE_<KEY>` and a flag of
`penstock serve`, `engine` and `api`. A flag wins over the environment, the environment over the file, the file over the
default. `--config` or `SERVICE_CONFIG` names the file; the default is `penstock.toml` in the current directory.

    penstock config

prints the effective values and the origin of each, with secrets hidden. With an unknown key or an invalid value the
service does not start; one line names the key, the value, its origin and what is allowed. An empty value of an optional
key (`SERVICE_BROKER_URL=`) removes the value from a lower layer.

Written by `python scripts/settings_table.py` out of `config/keys.py`; a test compares the two.

| key | meaning | allowed | default |
|---|---|---|---|
"""

TAIL = """
The flag of `max_store_bytes` is `--max-store-bytes`, its variable `SERVICE_MAX_STORE_BYTES`; the same holds for every
key. The command line also reads two variables: `SERVICE_URL`, the address of the service (default
`http://127.0.0.1:8080`), and `SERVICE_API_TOKEN`, which it sends as its bearer token.

## A file

    listen = "127.0.0.1:8080"
    data_dir = "/var/lib/penstock"
    max_store_bytes = "50GiB"
    fsync = "always"
    history_max_age = "90d"
    log_format = "json"
"""


def page() -> str:
    """The whole page, as it stands in docs/settings.md."""
    return HEAD + "".join(map(_row, KEYS.values())) + TAIL


def _row(key: Key) -> str:
    default = DEFAULTS.get(key.name) or key.shown(value_of(Settings(), key))
    shown = default if key.name in DEFAULTS else f"`{default}`" if default else "none"
    return f"| `{key.name}` | {key.help} | {key.kind.allowed} | {shown} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
