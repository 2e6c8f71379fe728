"""What a storm might leave behind of steps that wait for events: good
histories, and those that break one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chaos_parts.evidence import Evidence, Sent
from chaos_parts.kind_workflows import ANSWER, ASKING, WAITING
from chaos_parts.step_account import Seen

from penstock.engine.times import rfc3339
from tests.scripts.broken_kinds import facts, failed
from tests.scripts.broken_promises import BEGIN, COMPLETED, RUN, event, evidence, started, step, timer


def answer(seq: int, at: float, number: int = 0, key: str = "k") -> Sent:
    return Sent(seq, at, ANSWER, {"order": {"key": key}, "number": number, "name": f"{key}-answer-{number}"})


def received(step_id: str, sent: Sent) -> Seen:
    return event("event.received", step_id, {"event": sent.name, "seq": sent.seq, "body": sent.body})


def asked(
    *sent: Sent, end: Seen | None = None, since_s: float = 0.0, lasts_s: float = 5.0, failure: bool = False
) -> Evidence:
    """A first step that waits; the run was started 1 s after BEGIN."""
    waits = facts("w", event=ANSWER, since=rfc3339(BEGIN + 1 + since_s), until=rfc3339(BEGIN + 1 + since_s + lasts_s))
    last = end or received("w", sent[0])
    error = failed('step "w" failed: no event chaos-answer came within 5s', "w")
    rest = [last, error] if failure else [last, *step("after"), COMPLETED]
    return evidence(
        ASKING, started(key="k"), waits, *rest, events=sent, dead_letters=frozenset({(RUN, "w")} if failure else ())
    )


def good_wait() -> Evidence:
    """Another key's event, and one that is too old, do not count."""
    return asked(
        answer(9, BEGIN + 2, 1),
        answer(7, BEGIN + 0.5, 0),
        answer(8, BEGIN + 1.5, 0, "other"),
        end=received("w", answer(9, BEGIN + 2, 1)),
    )


TOO_LATE = timer("wait.w", 1, BEGIN + 6.1)


def good_deadline() -> Evidence:
    return asked(answer(7, BEGIN + 6.01), end=TOO_LATE, failure=True)


def second_event_ends_it() -> Evidence:
    return asked(answer(7, BEGIN + 2, 0), answer(8, BEGIN + 2.5, 1), end=received("w", answer(8, BEGIN + 2.5, 1)))


def anothers_event_ends_it() -> Evidence:
    return asked(answer(7, BEGIN + 2, 0, "other"))


def event_from_before_the_wait() -> Evidence:
    return asked(answer(7, BEGIN + 0.5))


def event_that_was_never_sent() -> Evidence:
    return asked(end=received("w", answer(7, BEGIN + 2)))


def event_with_another_body() -> Evidence:
    return asked(answer(7, BEGIN + 2, 0), end=received("w", answer(7, BEGIN + 2, 5)))


def deadline_before_the_event() -> Evidence:
    return asked(answer(7, BEGIN + 5.9), end=TOO_LATE, failure=True)


def deadline_too_early() -> Evidence:
    return asked(end=timer("wait.w", 1, BEGIN + 5.5), failure=True)


def wait_begins_late() -> Evidence:
    return asked(answer(7, BEGIN + 3), since_s=0.5)


def wait_ends_late() -> Evidence:
    return asked(answer(7, BEGIN + 3), lasts_s=5.5)


def waited(first: Sent, second: Sent, *sent: Sent) -> Evidence:
    """Two waits, one after the other: the first begins 3 s after BEGIN, when `a` has completed, the second 5 s."""
    waits = [
        facts("w", event=ANSWER, since=rfc3339(BEGIN + 3 - 60), until=rfc3339(BEGIN + 3 + 6)),
        received("w", first),
        facts("again", event=ANSWER, since=rfc3339(BEGIN + 5 - 60), until=rfc3339(BEGIN + 5 + 6)),
        received("again", second),
    ]
    return evidence(
        WAITING, started(key="k"), *step("a"), *waits, *step("after"), COMPLETED, events=[first, second, *sent]
    )


def good_waits() -> Evidence:
    """Both events are from before the run; the second wait passes over the first event, and over the refused one."""
    found = waited(answer(3, BEGIN - 9, 2), answer(5, BEGIN - 7, 1))
    found.events = sorted([*found.events, answer(4, BEGIN - 8, 2)], key=lambda one: one.seq)
    return found


def one_event_for_two_waits() -> Evidence:
    return waited(answer(3, BEGIN - 9, 0), answer(3, BEGIN - 9, 0))


def refused_event_ends_it() -> Evidence:
    return waited(answer(3, BEGIN - 9, 0), answer(4, BEGIN - 8, 2))


GOOD: tuple[Callable[[], Evidence], ...] = (
    good_wait,
    good_deadline,
    good_waits,
)

BROKEN: Mapping[Callable[[], Evidence], str] = {
    second_event_ends_it: "waits",
    anothers_event_ends_it: "waits",
    event_from_before_the_wait: "waits",
    event_that_was_never_sent: "waits",
    event_with_another_body: "waits",
    deadline_before_the_event: "waits",
    deadline_too_early: "timers in time",
    wait_begins_late: "waits",
    wait_ends_late: "waits",
    one_event_for_two_waits: "waits",
    refused_event_ends_it: "waits",
}
