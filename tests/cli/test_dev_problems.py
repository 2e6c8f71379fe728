"""What `penstock dev` says about code that it cannot serve, and where it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock import Workflow
from penstock.cli.dev.loading import problems_of
from penstock.cli.dev.problems import problem_of
from tests.support.service import PENSTOCK


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ndef f(:\n", ("app.py:2", "SyntaxError: invalid syntax", "def f(:\n      ^")),
        ('x = 1\neval("1 +")\n', ("app.py:2", "SyntaxError: invalid syntax", 'eval("1 +")')),
        ('raise SyntaxError("mine")\n', ("app.py:1", "SyntaxError: mine", 'raise SyntaxError("mine")')),
        (
            'raise SyntaxError("mine", ("app.py", None, None, None))\n',
            ("app.py:1", "SyntaxError: mine", 'raise SyntaxError("mine", ("app.py", None, None, None))'),
        ),
        ("# -*- coding: nope -*-\n", ("app.py", "SyntaxError: unknown encoding: nope", "")),
        ("import sys\nsys.exit(3)\n", ("app.py:2", "SystemExit: 3", "sys.exit(3)")),
    ],
)
def test_an_error_is_shown_at_the_line_of_the_users_that_led_to_it(
    tmp_path: Path, source: str, said: tuple[str, str, str]
) -> None:
    app = tmp_path / "app.py"
    app.write_text(source)

    with pytest.raises((SyntaxError, SystemExit)) as raised:
        exec(compile(app.read_bytes(), str(app), "exec"), {})

    problem = problem_of(raised.value, app)
    assert said[0] == problem.place
    assert problem.text.startswith(said[1])
    assert said[2] == problem.excerpt


def test_workflows_of_one_name_and_version_are_refused(tmp_path: Path) -> None:
    first, same, newer, other = (
        Workflow("greet"),
        Workflow("greet", version="1"),
        Workflow("greet", version="2"),
        Workflow("leave"),
    )
    for flow in (first, same, newer, other):
        flow.sleep("nap", duration="1ms")

    found = problems_of([first, newer, same, other], tmp_path / "app.py")

    assert ['workflow "greet": another one has the same name and version'] == [problem.text for problem in found]
    assert [] == problems_of([first, newer, other], tmp_path / "app.py")


@pytest.mark.parametrize("name", ["json.py", "penstock.py"])
def test_a_file_that_would_hide_a_module_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")

    ran = subprocess.run([PENSTOCK, "dev", str(tmp_path / name)], capture_output=True, text=True, check=False)

    assert 2 == ran.returncode
    assert f"{name} would hide the module {Path(name).stem}" in ran.stderr.replace("\n", " ")
