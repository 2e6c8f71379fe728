"""What the events of a run's history carry: their payloads, in their stored form.

Fields that have their default are not written, so that a run pays for nothing that it does not use.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType, field

NULL = Raw(b"null")
LABELS_FORMAT = 2  # `v` of a start with labels: older versions would decide otherwise where an expression reads one


class TriggerRef(Struct, frozen=True, omit_defaults=True):
    """What started the run: name and kind of the trigger, and the time of the trigger event (RFC 3339).

    `headers` are the headers that the dialect of a webhook defines beside its signature, with names in lower case:
    `x-github-event`, `webhook-id`, …
    """

    name: str
    kind: str
    at: str = ""
    headers: dict[str, str] = {}


class ParentRef(Struct, frozen=True, omit_defaults=True):
    """The step that started the run as its child, and the attempt of it; `item` is the number of a map's element.

    `depth` counts the runs in the chain from the first one to the parent. A detached child's end is not reported.
    """

    run_id: str
    step_id: str
    attempt: int = 1
    item: int | None = None
    depth: int = 1
    detached: bool = False


def parent_run_id(parent: ParentRef | str | None) -> str | None:
    """The id of the run that has started this one; None for a run without a parent."""
    return parent.run_id if isinstance(parent, ParentRef) else parent


class Taking(Struct, frozen=True, omit_defaults=True):
    """What a rerun takes over: the steps that are `done`, and the `parts` of planners and maps that are not: the plan
    and the elements that have completed. Those of a plan come after their planner."""

    done: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def without(self, step_id: str) -> Taking | None:
        """What is left to be taken over after this step; None: nothing."""
        done = tuple(one for one in self.done if one != step_id)
        parts = tuple(one for one in self.parts if one != step_id)
        return Taking(done, parts) if done or parts else None


class Started(Struct, frozen=True, omit_defaults=True):
    """`digest` identifies the definition that the run uses until its end; an absent input is null.

    `parent` is text in events that other tools wrote. `failure_of` is the run whose failure has started this one.
    `labels` are texts by names. `by` is the name of the key with which the run was started.
    `rerun_of` is the run that this one repeats, from the step `rerun_from` on; it begins when it has taken over what
    `takes` says. `under` are the ids of limits under whose slots the run goes on: an ancestor holds them. `waits` is
    the number of limits that the workflow sets its runs: they are pending until all of them have granted a slot.
    """

    workflow: str
    version: str
    digest: str
    input: Raw = NULL
    trigger: TriggerRef | None = None
    rerun_of: str | None = None
    parent: ParentRef | str | None = None
    failure_of: str | None = None
    labels: dict[str, str] | None = None
    rerun_from: str | None = None
    takes: Taking | None = None
    by: str | None = None
    under: tuple[str, ...] = ()
    waits: int = 0


class Scheduled(Struct, frozen=True, omit_defaults=True):
    workflow: str
    version: str
    digest: str
    run_at: str
    input: Raw = NULL
    labels: dict[str, str] | None = None
    by: str | None = None


class Failure(Struct, frozen=True, omit_defaults=True):
    """`failure_type` is retriable (also for any unknown value), non_retriable or retry_after. `traceback` has the last
    frames."""

    error: str = ""
    failure_type: str = "retriable"
    retry_after_ms: int = 0
    traceback: str = ""


class ApprovalRequest(Struct, frozen=True, omit_defaults=True):
    token: str
    expires_at: str
    subject: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class Decision(Struct, frozen=True, omit_defaults=True):
    comment: str | None = None
    approved_by: str | None = None


class TimerRef(Struct, frozen=True, omit_defaults=True):
    """`timer` is `workflow` or `<kind>.<step_id>`; then `~<iteration>` in later iterations of a loop, then `+<pauses>`
    after pauses: those of the run, or those that its worker asked for.

    The kinds: timeout, retry (also a loop's delay), loop (its maximum duration), approval (expiry), sticky (end of the
    wait for the bound worker), lost (that worker began the task and has left; maintenance appends it). `attempt` is the
    attempt that the timer was set for; for workflow and loop, the number of resumptions. `early`: somebody has ended
    the wait before its time.
    """

    timer: str
    step_id: str | None = None
    attempt: int | None = None
    early: bool = False


class Reply(Struct, frozen=True, omit_defaults=True):
    """What a step answers to the caller of its run; an absent body is null."""

    status: int = 200
    headers: dict[str, str] = {}
    body: Raw = NULL


class Correlation(Struct, frozen=True):
    """`value` is what an event has at the dot path `field` of its body."""

    field: str
    value: Raw


class EventWait(Struct, frozen=True, omit_defaults=True):
    """What a step waits for: an event of this name, stored from `since` to `until` (s since the epoch, broker time;
    None: for ever). Those with the sequences `passed` have completed steps before it."""

    event: str
    since: float
    until: float | None = None
    correlate: Correlation | None = None
    passed: tuple[int, ...] = ()


class StepFacts(Struct, frozen=True, omit_defaults=True):
    """What the engine has worked out for a step that no worker begins.

    `wake_at` (RFC 3339): when a sleep ends. `items`: how many elements a map has. `child_run_id`: the run that this
    attempt has started. `reply`: the response of a step that responds, which completes it. `event`, `correlate`: what a
    step waits for; events count that are stored from `since` to `until` (RFC 3339; without one, for ever).
    """

    wake_at: str | None = None
    items: int | None = None
    child_run_id: str | None = None
    reply: Reply | None = None
    event: str | None = None
    correlate: Correlation | None = None
    since: str | None = None
    until: str | None = None


class ChildEnd(Struct, frozen=True, omit_defaults=True):
    """How the child `run_id` has ended: `status` is that of the run. `output_bytes` replaces an output that is too
    large for an event."""

    run_id: str
    status: str
    output: Raw | UnsetType = UNSET
    output_bytes: int = 0
    error: str | None = None


class ReceivedEvent(Struct, frozen=True, omit_defaults=True):
    """An event that a step has waited for: its name, its sequence in the stream of events, its body."""

    event: str
    seq: int
    body: Raw = NULL


class PauseScope(Struct, frozen=True, omit_defaults=True):
    """What is paused, or goes on: the run; with `children` the runs that its steps wait for, too, and theirs."""

    children: bool = False


class PauseRef(Struct, frozen=True, omit_defaults=True):
    """How long the worker asked the broker to hold the task back, and a label: both are only shown to people. The pause
    ends with the `step.started` of the next delivery."""

    duration_ms: int = 0
    name: str | None = None


class SignalRef(Struct, frozen=True, omit_defaults=True):
    """`by` is the name of the key with which it was sent."""

    name: str
    size: int = 0
    by: str | None = None


class Cancellation(Struct, frozen=True, omit_defaults=True):
    """`compensate`: the run undoes its steps before it ends. When it has, the engine appends a second cancellation, and
    `compensation`, completed or failed, says whether all of them were undone."""

    reason: str | None = None
    compensate: bool = False
    compensation: str | None = None


class Compensating(Struct, frozen=True, omit_defaults=True):
    """`error` is why the run fails; without one it is cancelled. `steps` are those that are undone, the first one
    first, as far as they are known; a map stands for its elements."""

    error: str | None = None
    steps: tuple[str, ...] = ()


class Resumed(Struct, frozen=True, omit_defaults=True):
    """`dead_letters` is the sequence of the newest dead letter at that moment: those of the steps up to there are
    removed, later ones are not. Its stored name is `letters`. `holds` does not begin: the next event completes it.
    `waits` is the number of limits whose slots the run must have before it goes on."""

    steps: tuple[str, ...] = ()
    dead_letters: int = field(name="letters", default=0)
    holds: str | None = None
    waits: int = 0


class Completed(Struct, frozen=True, omit_defaults=True):
    """`resumes` is the number of resumptions so far: an end from before a resumption is ignored.

    `size` replaces an output over the limit of a payload: such an output is that of the terminal steps, in their own
    events.
    """

    output: Raw = NULL
    resumes: int = 0
    output_bytes: int = 0


class RunFailure(Struct, frozen=True, omit_defaults=True):
    """`compensation`, completed or failed: the run has undone its steps, or not all of them."""

    error: str = ""
    step_id: str | None = None
    resumes: int = 0
    compensation: str | None = None


class Fragment(Struct, frozen=True):
    """The valid steps of a planner's plan, as definitions have them, with the ids that the plan gave them."""

    steps: Raw = Raw(b"[]")


class Override(Struct, frozen=True, omit_defaults=True):
    """The output of a step that somebody (`by`) has completed by hand."""

    output: Raw = NULL
    by: str | None = None


class TakenStep(Struct, frozen=True, omit_defaults=True):
    """What has become of a step, or of an element of a map, in the run that this one repeats.

    `status` is completed, skipped or recovered, and failed of an element; pending of a map and running of a planner of
    which only parts are taken over. `items` is how many elements the map has. `received` is the sequence of the event
    that it had waited for.
    """

    status: str
    output: Raw | UnsetType = UNSET
    error: str | None = None
    attempts: int = 0
    iteration: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    child_run_id: str | None = None
    received: int | None = None
    items: int | None = None


class SlotGrant(Struct, frozen=True, omit_defaults=True):
    """The limit `limit_id` (its kind, scope and key) has granted a slot to `holder`. `inherited`: nothing was taken, an
    ancestor of the run holds a slot of the same limit. `more` is how many limits a run waits for after this one."""

    holder: str
    limit_id: str
    kind: str
    scope: str
    key: str | None = None
    step_id: str | None = None
    inherited: bool = False
    more: int = 0


class SlotRefusal(Struct, frozen=True, omit_defaults=True):
    """The limit lets the holder, a run, not begin: `reason` is `limit` (on_limit: skip), or `replaced` by a newer
    run."""

    holder: str
    limit_id: str
    reason: str
