"""Where in the user's code an error is."""

from __future__ import annotations

import ast
import sys
import traceback
from pathlib import Path
from typing import Any

from penstock.cli.dev.messages import CodeProblem
from penstock.engine.errors import PenstockError

LIBRARIES = "site-packages"


def problem_of(error: BaseException, app: Path) -> CodeProblem:
    """The error with the last line of the user's code that led to it; of a SyntaxError in that code, the line that it
    names."""
    if isinstance(error, SyntaxError) and error.lineno and _is_users(error.filename or "", app):
        return _syntax_problem(error, app)
    text = _text_of(error)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, app)]
    if not frames:
        return CodeProblem(app.name, text)
    return CodeProblem(f"{_shown(frames[-1].filename, app)}:{frames[-1].lineno}", text, frames[-1].line or "")


def line_of(value: Any, app: Path) -> str:
    """Where a module of the user's gives the value its name, as `app.py:12`; the file alone if it is not found."""
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if source is None or not _is_users(source, app):
            continue
        names = {name for name, known in vars(module).items() if known is value}
        if line := _assignment(Path(source), names):
            return f"{_shown(source, app)}:{line}"
    return app.name


def _text_of(error: BaseException) -> str:
    match error:
        case PenstockError():
            return str(error)
        case SyntaxError():  # in what `eval` was given, say
            return f"{type(error).__name__}: {error.msg}"
        case _:
            return "".join(traceback.format_exception_only(error)).strip()


def _assignment(source: Path, names: set[str]) -> int | None:
    for node in ast.walk(ast.parse(source.read_bytes())):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if name in names:
                return node.lineno
    return None


def _syntax_problem(error: SyntaxError, app: Path) -> CodeProblem:
    # File and line come first, then the line with a mark below it, and the text last
    described = "".join(traceback.format_exception_only(error)).splitlines()
    return CodeProblem(
        f"{_shown(error.filename or '', app)}:{error.lineno}",
        described[-1],
        "\n".join(line.removeprefix("    ") for line in described[1:-1]),
    )


def _is_users(filename: str, app: Path) -> bool:
    path = Path(filename)
    return path.is_relative_to(app.parent) and LIBRARIES not in path.parts


def _shown(filename: str, app: Path) -> str:
    path = Path(filename)
    return str(path.relative_to(app.parent) if path.is_relative_to(app.parent) else path)
