"""Documents that a user gives to a command: JSON or TOML from a file, from stdin (`-`), or in the argument itself."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
import orjson
from msgspec import Raw

from penstock.config.limits import BODY_BYTES_MAX, BULK_RUNS_MAX

WORDS = re.compile(r"[\w .:/-]+")
REQUEST_BYTES_MAX = BODY_BYTES_MAX - 64 * 1024  # of inputs in one bulk request, with room for what stands around them


def given_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The one option for payloads, of every command that takes one; its value is for `run_input` or `payload`."""
    return click.option(
        "--input", "--data", "given", metavar="JSON|@FILE|-", help=f"{text} JSON, @FILE, or - for stdin."
    )


def definition(file: BinaryIO) -> bytes:
    """A workflow definition as JSON. TOML is known by the file's name, or on stdin by not being JSON."""
    body, name = file.read(), file.name
    if name.endswith(".toml"):
        return orjson.dumps(_toml(body, name))
    try:
        orjson.loads(body)
    except ValueError as error:
        if name != "<stdin>" or body.lstrip()[:1] in (b"{", b"["):
            raise click.BadParameter(f"{name} is not JSON: {error}") from error
        return orjson.dumps(_toml(body, name))
    return body


def run_input(text: str, option: str = "--input") -> bytes:
    """The JSON that `--input` of a run, or another option, means: the text itself, `@FILE`, or `-` for stdin."""
    if text == "-":
        return _json(sys.stdin.buffer.read(), "stdin")
    if text.startswith("@"):
        return _json(_read(text[1:]), text[1:])
    return _argument(text, option)


def payload(text: str) -> bytes:
    """The bytes that `--input` of a signal means: JSON in the text itself, or whatever `@FILE` or stdin (`-`) holds."""
    if text == "-":
        return sys.stdin.buffer.read()
    return _read(text[1:]) if text.startswith("@") else _argument(text, "--input")


def bulk_inputs(body: bytes) -> list[bytes]:
    """One JSON text per run, out of a JSON array or of JSON lines; blank lines do not count."""
    try:
        return [bytes(item) for item in msgspec.json.decode(body, type=list[Raw])]
    except msgspec.DecodeError:
        numbered = enumerate(body.splitlines(), start=1)
        return [_json(line, f"line {number}") for number, line in numbered if line.strip()]


def requests(inputs: list[bytes]) -> Iterator[list[bytes]]:
    """Cut `inputs` so that each part fits into one bulk request."""
    part: list[bytes] = []
    size = 0
    for item in inputs:
        if part and (len(part) == BULK_RUNS_MAX or size + len(item) > REQUEST_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item) + 1
    if part:
        yield part


def _toml(body: bytes, name: str) -> object:
    try:
        return tomllib.loads(body.decode())
    except ValueError as error:
        raise click.BadParameter(f"{name} is not TOML: {error}") from error


def _argument(text: str, option: str) -> bytes:
    """JSON in the argument itself. Raises BadParameter, with the way out of the most frequent mistake: a text without
    its quotes."""
    try:
        return _json(text.encode(), option)
    except click.BadParameter as error:
        quoted = shlex.quote(orjson.dumps(text).decode())
        hint = (
            f"a text needs quotes of its own: {option} {quoted}"
            if WORDS.fullmatch(text)
            else f"a file is given as {option} @FILE"
        )
        raise click.BadParameter(f"{error.message} ({hint})") from error


def write(path: Path, body: bytes) -> None:
    """Write a file that an option names."""
    try:
        path.write_bytes(body)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be written: {error.strerror}") from error


def _json(body: bytes, name: str) -> bytes:
    try:
        orjson.loads(body)
    except ValueError as error:
        raise click.BadParameter(f"{name} is not JSON: {error}") from error
    return body


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}") from error
