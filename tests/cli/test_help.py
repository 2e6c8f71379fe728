"""What the command tells of itself: summaries, and completions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

from penstock.cli import main
from tests.cli.conftest import Penstock
from tests.support.service import PENSTOCK, clean_environ


def groups(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups(command, (*path, name))


@pytest.mark.parametrize(
    ("path", "group"), [*groups(main.penstock)], ids=lambda one: " ".join(one) if isinstance(one, tuple) else ""
)
def test_every_summary_is_whole(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], group: click.Group
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = " ".join(penstock(*path, "--help").out.split())
    assert "..." not in shown.replace("[ARGS]...", "").replace("[ID]...", "").replace("ID...", "")
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        summary = main.COMMANDS[name].help if not path else command.get_short_help_str(10_000)
        assert (" ".join(summary.split()) in shown) is not command.hidden


def completed(*words: str) -> list[str]:
    """What a shell is offered after these words, the last of which is not finished."""
    *done, begun = words
    complete = ShellComplete(main.penstock, {}, "penstock", "_PENSTOCK_COMPLETE")
    return [item.value for item in complete.get_completions(done, begun)]


def test_commands_options_and_choices_are_completed() -> None:
    assert ["run"] == completed("ru")
    assert {"start", "cancel", "retry"} <= set(completed("run", ""))
    assert "decide" not in completed("run", "")
    assert ["--workflow"] == completed("run", "list", "--w")
    assert ["demo", "dev", "dlq", "doctor", "drain"] == sorted(completed("d"))
    assert ["failed"] == completed("run", "list", "--status", "fa")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_the_script_that_the_page_names(shell: str) -> None:
    asked = {**clean_environ(), "_PENSTOCK_COMPLETE": f"{shell}_source"}
    script = subprocess.run([PENSTOCK], env=asked, capture_output=True, text=True, check=True)
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in script.stdout
