"""Who answers: workers of every character, and people with tokens. What they do is a matter of the seed and of what
they are asked."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.control import approvals
from penstock.broker import message_ids, names
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.worker_messages import TaskPayload, decode, decode_input
from penstock.engine.errors import Conflict, Denied, NotFound, Unavailable
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.event_payloads import Decision
from penstock.engine.run.events import ApprovalRequested, Event, encode
from penstock.engine.run.expansion import expanded
from tests.properties.world import TOO_MUCH, said
from tests.simulation import planned
from tests.simulation.broken import Broken
from tests.simulation.streams import Message

if TYPE_CHECKING:
    from tests.simulation.world import World

TYPES, WORKER_IDS = ("t", "u"), ("w0", "w1")
NEVER_TAKEN = ("u", "w1")  # by that worker for itself, as long as things go wrong
TAKES_S = 4.0  # how long a worker takes the same types
REDELIVERED_S = 30.0  # a worker that is gone keeps its task for so long
FAIR_S = 0.05
CONTINUES = 2


class Character(NamedTuple):
    """What a worker says of a task, and after how many seconds each. `keeps`: it does not acknowledge, the task comes
    again."""

    said: tuple[tuple[float, str], ...]
    keeps: bool = False


PAUSE_S = 1.2
OUTPUT, OTHER_OUTPUT = '{"x":1}', '{"x":0}'
CHARACTERS = (
    (26, Character(((0.05, "started"), (0.4, OUTPUT)))),
    (46, Character(((0.02, OTHER_OUTPUT),))),
    (54, Character(((0.05, "started"), (1.5, "null")))),
    (60, Character(((0.1, OUTPUT), (0.2, OUTPUT)))),
    (64, Character(((0.05, "started"), (0.3, OUTPUT), (6.5, OUTPUT), (9.0, "started")))),
    (72, Character(((0.1, "started"), (0.2, "retriable")))),
    (76, Character(((0.1, "retriable"), (0.15, "retriable"), (5.6, "retriable")))),
    (78, Character(((0.1, "non_retriable"),))),
    (81, Character(((0.1, "retry_after"),))),
    (84, Character(((0.05, "started"), (12.0, OUTPUT)))),
    (87, Character(((2.8, OTHER_OUTPUT),))),
    (90, Character((), keeps=True)),
    (92, Character(((0.05, "started"),), keeps=True)),
    (94, Character(((0.1, OUTPUT), (0.3, "retriable"), (6.0, "non_retriable")))),
    (96, Character(((0.05, "started"), (5.0, "retriable")))),
    (98, Character(((0.05, "started"), (2.6, "retriable")))),
    (100, Character(((0.6, OUTPUT), (0.6, "started")))),
)
# What hardly any worker does, in place of a share of the last ones.
RARE = (Character(((0.05, "started"), (0.4, "paused")), keeps=True), Character(((0.1, TOO_MUCH),)))
RARE_FROM, RARE_SHARES = 98, 6
FAIR = Character(((FAIR_S, OUTPUT),))


def _request_of(task: TaskPayload) -> object:
    """What the step's definition says (`plan.REQUEST`), with a secret by its name only."""
    return {"url": f"https://x.example/{task.workflow_name}", "headers": {"A": [{"secret": "KEY"}, " 1"]}}


def _character(chance: int) -> Character:
    number, share = chance % 100, chance // 100 % RARE_SHARES
    if number >= RARE_FROM and share < len(RARE):
        return RARE[share]
    return next(one for most, one in CHARACTERS if number < most)


def _with_its_start(character: Character, chance: int) -> tuple[float | None, tuple[tuple[float, str], ...]]:
    """What is said of a task, and when its worker begins if the first answer says that. Of those that say something at
    once half do so, and of those that begin and then answer a third."""
    (first_s, first), *others = character.said or ((0.0, ""),)
    if first in ("", "paused") or (first == "started" and (not others or others[0][1] == "paused")):
        return None, character.said
    if first == "started":
        return (first_s, tuple(others)) if chance // 10_000 % 3 == 0 else (None, character.said)
    return first_s / 2 if chance // 10_000 % 2 == 0 else None, character.said


def _chance_of(world: World, task: TaskPayload, delivery: int) -> int:
    return crc32(f"{world.label(task.run_id)}.{task.step_id}.{task.iteration}.{task.attempt}.{delivery}".encode())


class Workers:
    """Every queue has its workers. Those of a bound run are the one that it is bound to, who may be away for a while,
    and takes other types at other times."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._world.server.sticky_consumers = self._consumers
        self.fair = False
        self._waiting: dict[tuple[str, int], TaskPayload] = {}
        self.all_said: list[Event] = []

    def offered(self, message: Message, delivery: int = 1) -> None:
        """A task was queued, or has come again."""
        task = decode(message.data)
        if message.stream == names.STICKY and delivery == 1:
            self._check_taken(message, task)
        if task.step_type == "http" and decode_input(task) != _request_of(task):
            self._world.watch.fail(Broken("a request is not that of its definition", task.run_id))
        self._waiting[message.stream, message.seq] = task
        chance = _chance_of(self._world, task, delivery)
        number, character = chance % 100, FAIR if self.fair else _character(chance)
        away = message.stream == names.STICKY and not self.fair and number % 3 == 0
        self._work(message, task, Character((), keeps=True) if away else character, delivery)

    def _consumers(self) -> list[str]:
        """What the broker says that they take for themselves."""
        era = int(self._world.server.now / TAKES_S)
        return [
            names.sticky_consumer(task, worker_id)
            for task, worker_id in product(TYPES, WORKER_IDS)
            if self.fair or ((task, worker_id) != NEVER_TAKEN and crc32(f"{task}.{worker_id}.{era}".encode()) % 3)
        ]

    def _check_taken(self, message: Message, task: TaskPayload) -> None:
        run, workflow = self._world.watch.runs[task.run_id], self._world.watch.of[task.run_id].workflow
        plan = expanded(workflow, run).plan_of(task.step_id)
        if plan is None or plan.group != run.bound_group:
            self._world.watch.fail(Broken("a task waits for a worker of another group", task.run_id))
        if workflow.sticky == "soft" and names.sticky_of(message.subject) == NEVER_TAKEN and not self.fair:
            self._world.watch.fail(Broken("a task waits for a worker that takes none of its type", task.run_id))

    def be_fair(self) -> None:
        """From now on each does what it is asked at once, also what waits."""
        self.fair = True
        for (stream, seq), task in list(self._waiting.items()):
            if seq in self._world.server.streams[stream].messages:
                self._work(self._world.server.streams[stream].messages[seq], task, FAIR, 1)

    def repeat(self, pick: int) -> None:
        """Something that was said is said again, much later perhaps."""
        if self.all_said:
            self._world.server.when_up(self._publish, self.all_said[pick % len(self.all_said)])

    def _work(self, message: Message, task: TaskPayload, character: Character, delivery: int) -> None:
        stream, server = self._world.server.streams[message.stream], self._world.server

        def say(answer: str, last: bool, began_s: float | None) -> None:
            if delivery > 1 and message.seq not in stream.messages:
                return  # it did not come again: it was withdrawn
            if last and not character.keeps and message.seq in stream.messages:
                stream.remove(message.seq)
                self._waiting.pop((message.stream, message.seq), None)
            self.say(message, task, answer, delivery, began_s)

        answers = [one for one in character.said if one[1] not in ("started", "paused")]
        begins_s, whole = _with_its_start(character, _chance_of(self._world, task, delivery))
        for after_s, answer in whole:
            began_s = after_s - begins_s if begins_s is not None and (after_s, answer) == answers[0] else None
            is_last = bool(answers) and answer == answers[0][1]
            server.later(after_s, server.when_up, say, answer, is_last, began_s)
        if character.keeps:
            after_s = PAUSE_S if character is RARE[0] else REDELIVERED_S
            server.later(after_s, server.when_up, self._again, message, delivery + 1)

    def _again(self, message: Message, delivery: int) -> None:
        if message.seq in self._world.server.streams[message.stream].messages and not self.fair:
            self.offered(message, delivery)

    def say(
        self, message: Message, task: TaskPayload, answer: str, delivery: int = 1, began_s: float | None = None
    ) -> None:
        """`began_s`: the answer says that its worker began so long ago."""
        if task.step_type == "agent_loop" and answer in (OUTPUT, OTHER_OUTPUT) and task.iteration < CONTINUES:
            answer = "continue"
        worker = names.sticky_of(message.subject)[1] if message.stream == names.STICKY else None
        command = DispatchTask(
            task.step_id, "", task.attempt, task.iteration, task.input, {}, None, worker, task.step_type
        )
        now, worker_id = self._world.server.wall, f"w{task.attempt % 2}"
        began = None if began_s is None else now - began_s
        event = said(command, answer, True, now, worker_id, delivery, began=began)
        event = replace(event, run_id=task.run_id)
        if task.step_type == "planner" and answer in (OUTPUT, OTHER_OUTPUT, "null"):
            event = replace(event, payload=Raw(self._plan(task).encode()))
        self.all_said.append(event)
        self._publish(event)

    def _plan(self, task: TaskPayload) -> str:
        if self.fair:
            return planned.PLAIN
        chance = crc32(f"{self._world.label(task.run_id)}.{task.step_id}.{task.attempt} plans".encode())
        return planned.plan_of(chance, 1 + task.step_id.count("."))

    def _publish(self, event: Event) -> None:
        server = self._world.server
        server.publish(
            server.history, names.history_subject(event.run_id), encode(event), {MSG_ID: message_ids.of_event(event)}
        )


class People:
    """They have the tokens of all requests, and decide: two at a time. A token is good for one decision."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.granted: dict[tuple[str, str, int], int] = {}
        self.unknown: set[tuple[str, str, int]] = set()

    def asked(self, event: ApprovalRequested) -> None:
        """A request is in the log."""
        number = crc32(f"{self._world.label(event.run_id)}.{event.step_id}.{event.attempt_number}".encode()) % 10
        if number < 6:
            for other in range(2 if number < 4 else 1):
                self._world.server.later(0.3 + number / 5, self._decide, event, bool((number + other) % 4))

    def decide(self, event: ApprovalRequested) -> None:
        self._decide(event, True)

    def _decide(self, event: ApprovalRequested, granted: bool) -> None:
        if self._world.front.store is not None and self._world.front.alive:
            self._world.front.spawn(self._say(event, granted))

    async def _say(self, event: ApprovalRequested, granted: bool) -> None:
        store = self._world.front.store
        assert store is not None
        key = event.run_id, event.step_id, event.attempt_number or 1
        try:
            await approvals.decide(store, event.run_id, event.step_id, event.payload.token, Decision(), granted=granted)
        except (Denied, Conflict, NotFound):
            return
        except Unavailable:
            self.unknown.add(key)
            return
        self.granted[key] = self.granted.get(key, 0) + 1
        if self.granted[key] > 1:
            self._world.watch.fail(Broken("two decisions were taken for one token", event.run_id))
