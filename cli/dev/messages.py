"""What a process with the user's code reports to the command that started it, one JSON object a line."""

from __future__ import annotations

import msgspec


class Serving(msgspec.Struct, frozen=True, tag=True):
    """Its workers take tasks: the names of its workflows, and its task types."""

    workflows: list[str]
    tasks: list[str]


class CodeProblem(msgspec.Struct, frozen=True, tag=True):
    """What is wrong with the code. `place` is a file, relative to the folder of the app, and a line if one is known;
    `excerpt` that line of it."""

    place: str
    text: str
    excerpt: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" + "".join(f"\n    {line}" for line in self.excerpt.splitlines())


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The code cannot be served; the process ends."""

    problems: list[CodeProblem]


Message = Serving | Refused
DECODER = msgspec.json.Decoder(Message)
