"""Secrets that headers name: read when a request is made, from the worker's environment or a file, and kept nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import orjson

from penstock.engine.definition.http_requests import is_secret_name
from penstock.engine.definition.identifiers import quoted
from penstock.worker.tasks.failures import NonRetriable

VARIABLE_PREFIX = "PENSTOCK_SECRET_"
SECRET_BYTES_MAX = 64 * 1024
MASK = "***"


class SecretStore:
    """Owned by the worker: where secrets come from. A variable goes before a file; a changed file counts at once."""

    def __init__(self, environ: Mapping[str, str], folder: str | None) -> None:
        self._environ, self._folder = environ, folder

    def value(self, name: str) -> str:
        """The secret of that name. Raises NonRetriable when there is none, or one that no header may have."""
        if not is_secret_name(name):
            raise NonRetriable(f"{quoted(name)} is no name of a secret")
        value = self._environ.get(VARIABLE_PREFIX + name)
        if value is None:
            value = self._from_file(name)
        if value is None:
            raise NonRetriable(
                f"secret {name} is unknown: its worker has neither {VARIABLE_PREFIX}{name} nor such a file"
            )
        if problem := _problem_with(value):
            raise NonRetriable(f"secret {name} {problem}")
        return value

    def _from_file(self, name: str) -> str | None:
        """The file's text without its last line break."""
        if self._folder is None:
            return None
        try:
            with Path(self._folder, name).open("rb") as file:
                return file.read(SECRET_BYTES_MAX).decode().removesuffix("\n").removesuffix("\r")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise NonRetriable(f"secret {name} cannot be read: its file is no UTF-8 text") from None
        except OSError as error:
            raise NonRetriable(f"secret {name} cannot be read: {error.strerror}") from None


class UsedSecrets:
    """The secrets of one request, and what hides them again in whatever comes back."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store
        self._values: set[str] = set()

    def value(self, name: str) -> str:
        """Raises NonRetriable, as `SecretStore.value`."""
        value = self._store.value(name)
        self._values.add(value)
        return value

    def hidden(self, text: str) -> str:
        return self.hidden_bytes(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def hidden_bytes(self, body: bytes) -> bytes:
        """`body` with `***` for each secret, as it is or as it stands in a JSON string."""
        for value in sorted(self._values, key=len, reverse=True):  # one may be a part of another
            for written in {value.encode(), orjson.dumps(value)[1:-1]}:
                body = body.replace(written, MASK.encode())
        return body


def _problem_with(value: str) -> str | None:
    if not value:
        return "is empty"
    if not value.isprintable() or value != value.strip():
        return "holds a line break, a control character or a space at its end, which no header may have"
    return None


def environment() -> Mapping[str, str]:
    """That of this process."""
    return os.environ
