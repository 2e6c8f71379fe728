"""A world: a broker, an engine, a front end, workers and people, and a plan by which things go wrong. Then they go
right, and every run must end.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.broker import names, record_keys
from penstock.broker.archive.archived_runs import archive_mark_in
from penstock.broker.records.imports import mark_in
from penstock.config.process.background import FAILURES
from penstock.engine.errors import PenstockError
from penstock.engine.run.commands import SetTimer
from penstock.engine.run.event_payloads import ParentRef
from penstock.engine.run.events import ApprovalRequested, Event, decode
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.run.timers import live_timers
from penstock.engine.times import instant
from tests.simulation.archiving import ARCHIVE
from tests.simulation.broken import Broken
from tests.simulation.client import Client
from tests.simulation.clock import TIME
from tests.simulation.ending import astray, check_records, rest
from tests.simulation.front import Front
from tests.simulation.limited.replayed import check_replays
from tests.simulation.loop import LIFE, Loop
from tests.simulation.outside import People, Workers
from tests.simulation.plan import CALLED, LIMITED, Known, Move, Plan, known
from tests.simulation.process import Process
from tests.simulation.server import Fault, Server
from tests.simulation.strangers import Strangers
from tests.simulation.watch import Watch

FAIR_S_MAX = 400.0  # everything ends within, once nothing goes wrong any more
LOOK_S = 5.0
CALM_S_MAX, CALM_LOOK_S = 40.0, 0.5
ASTRAY_S_MAX = 20.0  # an owner must find out that there is no other, and read the log; no answer is held up any more
LATE_S = 40.0  # a timer that has not fired by then is lost
QUIET_S_MAX = 90.0  # acknowledgements are held back for a while, and one that was lost is repeated after another
FREEZES_S_MAX = 3.0  # until an engine comes by where it is to be frozen
AGAIN_S = 0.4  # a process that died is started again
END_ROUNDS_MAX = 100  # of the loop, until what was cancelled has ended
RESUME = Move(0.0, "resume runs", 1)  # with children
LINGERS_S, LINGERS_S_MIN = 3.0, 0.1  # an owner that was replaced and does not know it yet


class World:
    """Owned by `play`."""

    def __init__(self, loop: Loop, plan: Plan) -> None:
        self.loop, self.plan = loop, plan
        self.server = Server(loop, plan.seed, plan.latency_s)
        self.server.archives = any(move.act == ARCHIVE for move in plan.moves)
        self.server.crash = self._crashed
        self._crashes: list[int] = []
        self._freezes: list[tuple[int, float, int]] = []
        TIME.on_point = self._reached
        self._known = [known(number) for number in plan.workflows]
        more = LIMITED if any(number >= LIMITED for number in plan.workflows) else 0
        called = [known(more + number) for number in CALLED] if any(one.larger for one in self._known) else []
        self._registered = [*self._known, *called]
        self._by_digest = {one.digest: one for one in self._registered}
        self.watch = Watch(self.server, self._by_digest, self._changed)
        self.workers, self.people, self.operations = Workers(self), People(self), Front(self)
        self.strangers = Strangers(self)
        self.watch.on_task = self.workers.offered
        self.watch.on_broken = self._stop
        self._over: asyncio.Event = asyncio.Event()
        self._chaos_until = 0.0
        self.fair = False
        self._lives = 0
        self._skews: dict[str, float] = {}
        self.processes: list[Process] = []
        self._asked: list[ApprovalRequested] = []
        self._failures = FAILURES.copy()
        bucket = self.server.streams[names.bucket_stream(names.DEFINITIONS)]
        for one in self._registered:
            for key in (one.definition.name, record_keys.definition_key(one.definition.name, one.digest)):
                self.server.publish(bucket, names.key_subject(names.DEFINITIONS, key), one.body, {})
        self.engine = self._begin("engine", "first")
        self.front = self._begin("front", "front")

    def workflow(self, pick: int) -> Known:
        return self._known[pick % len(self._known)]

    def label(self, run_id: str) -> str:
        """What a run is called in all variants of the plan."""
        run = self.watch.runs.get(run_id)
        if run is None:
            return ""
        if isinstance(run.parent, ParentRef):
            return f"{self.label(run.parent.run_id)}/{run.parent.step_id}.{run.parent.attempt}"
        if run.failure_of is not None:
            return f"{self.label(run.failure_of)}!"
        act_and_moment, _, _ = bytes(run.input).decode().rpartition(" ")
        return f'{self.plan.seed} {act_and_moment}"}} {run.rerun_of is None}'

    async def live(self) -> None:
        """Chaos, then peace, in which workers and people are first as they were, then fair. Raises Broken."""
        for move in self.plan.moves:
            self.server.later(move.at, self._move, move)
        self._chaos_until = max((move.at + 0.5 for move in self.plan.moves), default=0.0)
        while self.loop.now < (until := max(self._chaos_until, self.server.late_until)):
            await self._until(until)
        self._make_peace()
        await self._calm()
        self._be_fair()
        until = self.loop.now + FAIR_S_MAX
        while self.watch.open and self.loop.now < until:
            await self._pass(LOOK_S)
            self._look_after()
        if self.watch.open:
            raise Broken(
                f"the run has not ended in {FAIR_S_MAX:g} fair seconds: {_waits_for(self.watch.open[0])}",
                self.watch.open[0].run_id,
            )
        await self._quiet()
        self._check_background()
        check_records(self)

    async def _calm(self) -> None:
        """Until every timer that a run waits for is somewhere. Raises Broken for one that is nowhere."""
        since = self.loop.now
        missed = dict[tuple[str, SetTimer], float]()
        while (left := astray(self)) and self.loop.now < since + CALM_S_MAX:
            missed = {one: missed.get(one, self.loop.now) for one in left}
            for (run_id, timer), at in missed.items():
                if self.loop.now - at > ASTRAY_S_MAX:
                    raise Broken(f"the timer {timer.timer} is neither in memory nor with the broker", run_id)
            check_replays(self)
            await self._pass(CALM_LOOK_S)
        check_replays(self)

    async def _quiet(self) -> None:
        """Until nothing is left of what has ended, neither in memory nor unacknowledged. Raises Broken when that does
        not come."""
        since = self.loop.now
        while (left := rest(self)) and self.loop.now < since + QUIET_S_MAX:
            await self._pass(1.0)
            self._look_after()  # a start that was on its way when nothing was open
        if left:
            raise Broken(f"everything has ended, and left {left}")

    async def _until(self, when: float) -> None:
        await self._pass(when - self.loop.now)

    async def _pass(self, seconds: float) -> None:
        """Let time pass, until something is broken or it makes no sense to wait any longer."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._over.wait()
        except TimeoutError:
            pass
        if self.watch.broken:
            raise self.watch.broken[0]
        if self.loop.troubles:
            raise Broken(f"an error that nobody took: {self.loop.troubles[0]}")
        self._check_background()

    def _check_background(self) -> None:
        if failed := FAILURES - self._failures:
            raise Broken(f"background tasks have failed: {', '.join(failed)}")

    def _stop(self) -> None:
        self._over.set()

    # Processes

    def _begin(self, kind: str, place: str) -> Process:
        self._lives += 1
        process = Process(
            self.server, f"{kind}-{self._lives}", kind, place, {one.digest: one.workflow for one in self._registered}
        )
        process.task.add_done_callback(partial(self._ended, process))
        process.life.skew_s = self._skews.get(kind, 0.0)
        self.processes.append(process)
        return process

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        """However it came: the supervisor starts another one in its place."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PenstockError):
            self.watch.fail(Broken(f"a process ended with {error!r}"))
        if process in (self.engine, self.front) and not self._over.is_set():
            self.server.later(AGAIN_S, self._replace, process)

    def _replace(self, process: Process) -> None:
        if process is self.engine:
            self.engine = self._begin("engine", process.place)
        elif process is self.front:
            self.front = self._begin("front", process.place)

    def _reached(self, point: str) -> None:
        """The engine is between two effects."""
        if not (self._crashes or self._freezes) or LIFE.get() is not self.engine.life:
            return
        if self._crashes:
            self._crashes[0] -= 1
            if self._crashes[0] < 0:
                self._crashes.pop(0)
                self.server.note(None, f"crash at {point}")
                self.engine.kill()
                raise asyncio.CancelledError
        if self._freezes:
            left, seconds, pick = self._freezes.pop(0)
            if left:
                self._freezes.insert(0, (left - 1, seconds, pick))
                return
            self.server.note(None, f"frozen at {point}")
            old = self._replaced(seconds, pick)
            self.loop.freeze(old.life, seconds)

    def _crashed(self, client: Client) -> None:
        process = next(one for one in self.processes if one.client is client)
        process.kill()

    # Moves

    def _move(self, move: Move) -> None:
        self.server.note(None, f"--- {move}")
        match move.act:
            case "crash":
                self.engine.kill()
            case "crash front":
                self.front.kill()
            case "restart":
                self.engine.leave()
            case "pause":
                self._pause(self.engine, move.more)
            case "takeover":
                self._take_over(move.more, move.pick)
            case "join":
                self._join(move.more)
            case "disconnect":
                process = self.front if move.pick % 4 == 0 else self.engine
                process.client.disconnect()
                self.server.later(move.more / 2, process.client.reconnect)
            case "crash between":
                self._crashes.append(move.pick % 30)
            case "freeze between":
                self._freezes.append((move.pick % 30, move.more, move.pick // 30))
                self._chaos_until = max(self._chaos_until, self.loop.now + FREEZES_S_MAX)
            case "redeliver" | "reset":
                for consumer in self.server.consumers.values():
                    consumer.redeliver() if move.act == "redeliver" else consumer.reset(consumer.floor + 1)
            case "clock":
                self._jump("front" if move.pick % 3 == 0 else "engine", move.more)
            case "broker restart":
                self._restart_broker(move.more / 3, killed=move.pick % 2 == 0)
            case "late schedules":
                self.server.schedules_late_s = move.more
            case "repeat":
                self.workers.repeat(move.pick)
            case "child ended":
                self.strangers.end_child(move.pick)
            case (
                "crash_before"
                | "crash_after"
                | "last words"
                | "lose"
                | "lose_answer"
                | "refuse"
                | "stall"
                | "stall_answer"
            ):
                who = "front" if move.pick % 4 == 0 else "engine"
                self.server.armed[who].append(Fault(move.act, move.kind, move.more))
            case _:
                self.operations.wish(move)

    def _pause(self, process: Process, seconds: float) -> None:
        process.pause()
        self.server.later(seconds, process.go_on)

    def _jump(self, kind: str, seconds: float) -> None:
        """The wall clock of a host is set: so much ahead of the broker's from now on, or behind it."""
        self._skews[kind] = seconds
        for process in self.processes:
            if process.kind == kind:
                process.life.skew_s = seconds

    def _take_over(self, seconds: float, pick: int) -> None:
        """The owner is paused; another engine finds out, and takes over. Then the old one wakes up, and some time later
        it ends."""
        old = self._replaced(seconds, pick)
        old.pause()
        self.server.later(seconds, old.go_on)

    def _replaced(self, seconds: float, pick: int) -> Process:
        """The engine that was, beside which there is another one now. It ends some time after it has come back after so
        many s."""
        old, lives_s = self.engine, seconds + LINGERS_S_MIN + LINGERS_S * (pick % 4)
        self.engine = self._begin("engine", f"place {self._lives}")
        self.server.later(lives_s, old.kill if pick % 2 else old.leave)
        self._chaos_until = max(self._chaos_until, self.loop.now + lives_s)
        return old

    def _join(self, seconds: float) -> None:
        """Another engine takes its share, and hands it over again."""
        other = self._begin("engine", f"place {self._lives}")
        self.server.later(seconds, other.leave)

    def _restart_broker(self, seconds: float, *, killed: bool) -> None:
        """It is away for so long; then all connect again, one after the other."""
        self.server.stop(killed=killed)
        for process in self.processes:
            process.client.disconnect()
        self.server.later(seconds, self._broker_is_back)

    def _broker_is_back(self) -> None:
        self.server.start()
        for process in self.processes:
            self.server.later(self.server.latency_s(), process.client.reconnect)

    def _make_peace(self) -> None:
        """Nothing goes wrong any more; one owner is left."""
        self.server.note(None, "--- peace")
        self.server.schedules_late_s = 0.0
        for armed in self.server.armed.values():
            armed.clear()
        self._crashes.clear()
        self._freezes.clear()
        self.server.start()
        for process in self.processes:
            process.go_on()
            process.client.reconnect()
            if process not in (self.engine, self.front):
                process.kill()  # the other one must find that out

    def _be_fair(self) -> None:
        self.fair = True
        self.workers.be_fair()
        self._look_after()

    def _look_after(self) -> None:
        """People decide what is asked; timers that should have fired are lost, unless they are held up."""
        held_up = self.server.now < self.server.late_until + LATE_S
        for event in self._asked:
            step = self.watch.runs[event.run_id].steps[event.step_id]
            if step.status is StepStatus.RUNNING and step.attempts == (event.attempt_number or 1):
                self.people.decide(event)
        if any(run.pause is not None for run in self.watch.open):
            self.operations.wish(RESUME)
        self.watch.limits.check_room(self.loop.now)
        check_replays(self)
        for run in self.watch.open:
            self.strangers.be_fair(run)
            for timer in live_timers(run):
                if not held_up and max(timer.due, _set_at(run, timer)) < self.server.wall - LATE_S:
                    raise Broken(
                        f"the timer {timer.timer} was lost: it was due {self.server.wall - timer.due:.1f} s ago",
                        run.run_id,
                    )

    def _changed(self, before: Run | None, run: Run, event: Event) -> None:
        self.strangers.changed(run, event)
        if isinstance(event, ApprovalRequested):
            self._asked.append(event)
            self.people.decide(event) if self.fair else self.people.asked(event)

    def history(self, run_id: str) -> list[str]:
        """The run's events as people read them."""
        stored = self.server.history.matching(names.stored_subject(run_id))
        known = {message.seq: message for message in (*self.watch.archives.told.get(run_id, ()), *stored)}
        return [
            f"{message.seq:5} {message.at - self.server.wall + self.loop.now:9.3f}  "
            f"{archive_mark_in(message.data) or mark_in(message.data) or decode(message.data)}"
            for _, message in sorted(known.items())
        ]

    def end(self, loop: Loop) -> None:
        """Nothing of this world runs on, and nothing outside holds it: a task that is never told that it has ended
        stays with whoever started it."""
        self._over.set()
        for process in self.processes:
            process.kill()
        loop.call_later(0, loop.stop)
        loop.run_forever()
        for _ in range(END_ROUNDS_MAX):
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.call_soon(loop.stop)
            loop.run_forever()
            if not loop.is_busy:
                return


def _set_at(run: Run, timer: SetTimer) -> float:
    """A sleep may end before it begins."""
    step = run.find(timer.step_id or "")
    return 0.0 if step is None or step.wake_at is None else instant(step.started_at or "")


def _waits_for(run: Run) -> str:
    steps = {step_id: str(step.status) for step_id, step in run.steps.items()}
    timers = [(timer.timer, timer.due) for timer in live_timers(run)]
    return f"it is {run.status}, error={run.error}, steps {steps}, timers {timers}"
