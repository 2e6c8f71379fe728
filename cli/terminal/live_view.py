"""What steps say, for people: log lines, chunks, bars of progress."""

from __future__ import annotations

from collections.abc import Iterable

import click
import msgspec
from msgspec import UnsetType

from penstock.cli.terminal import output, times
from penstock.cli.terminal.session import as_json
from penstock.client.views import ChunkView, LogLineView, ProgressView

LEVEL_STYLES = {"warning": "yellow", "error": "red", "critical": "bright_red"}
BAR_CELLS = 20


def print_lines(lines: Iterable[LogLineView]) -> None:
    """One line each, as soon as it is there: JSON with `--json`, else time, level, step, text and fields."""
    as_lines = as_json()
    for line in lines:
        click.echo(msgspec.json.encode(line).decode() if as_lines else log_line(line))


def log_line(line: LogLineView) -> str:
    """`TIME  LEVEL  STEP  TEXT  FIELDS`, `attempt N` behind the step from the second one on."""
    level = click.style(line.level.ljust(8), fg=LEVEL_STYLES.get(line.level))
    step = line.step_id + _again(line)
    parts = [times.moment(line.at, "milliseconds"), level, output.printable(step), output.printable(line.text)]
    return "  ".join([*parts, *_fields(line)])


def print_chunks(chunks: Iterable[ChunkView]) -> None:
    """Text as it is, other JSON one value a line; an attempt after the first one begins with a line that says so. With
    `--json`, one object a line."""
    if as_json():
        for chunk in chunks:
            click.echo(msgspec.json.encode(chunk).decode())
        return
    attempts, ends = dict[str, str](), "\n"
    try:
        for chunk in chunks:
            text = _text(chunk)
            if (again := _again(chunk)) != attempts.get(chunk.step_id, ""):
                attempts[chunk.step_id] = again
                text = f"\n[{output.printable(chunk.step_id)}{again}]\n{text}"
            click.echo(text, nl=False)
            ends = text[-1:] or ends
    finally:  # what follows, an error too, has a line of its own
        if ends != "\n":
            click.echo()


def bar(progress: ProgressView) -> str:
    """`[####----------------] 3 of 10 pages`; without a total, only what is done."""
    done, text = _number(progress.done), f" {progress.text}" if progress.text else ""
    if progress.total is None:
        return f"{done}{text}"
    share = min(1.0, progress.done / progress.total) if progress.total else 1.0
    cells = round(share * BAR_CELLS)
    return f"[{'#' * cells}{'-' * (BAR_CELLS - cells)}] {done} of {_number(progress.total)}{text}"


def _again(said: LogLineView | ChunkView) -> str:
    """Which attempt and delivery it is of, each from the second one on."""
    counts = (("attempt", said.attempt), ("delivery", said.delivery))
    return "".join(f" {name} {number}" for name, number in counts if number > 1)


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:,.0f}"


def _fields(line: LogLineView) -> list[str]:
    return [] if isinstance(line.fields, UnsetType) else [output.cell(bytes(line.fields).decode())]


def _text(chunk: ChunkView) -> str:
    if isinstance(chunk.data, UnsetType):
        return f"\n[{chunk.dropped} chunks dropped]\n"
    value = msgspec.json.decode(chunk.data)
    if isinstance(value, str):
        return "\n".join(map(output.printable, value.split("\n")))
    return bytes(chunk.data).decode() + "\n"
