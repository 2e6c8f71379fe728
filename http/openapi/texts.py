"""What each operation does, for readers of the API's document: one text for each operation, by its name."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS: Mapping[str, str] = {
    "listWorkflows": "Each name once, with the definition that new runs get.",
    "registerWorkflow": (
        "A definition is checked as a whole, and every problem is named, one a line. Runs that have started keep "
        "the definition that they started with; registering the same one again changes nothing. `warnings` says what "
        "may be as it should be, such as a task that no worker serves now."
    ),
    "getWorkflow": (
        "The definition as it was registered, durations as text; with `version`, the newest one with that label."
    ),
    "deleteWorkflow": (
        "Nothing starts a run of it any more, and its versions are forgotten. While triggers start it, or runs of it "
        "have not ended, it is refused, and they are named; with `force` it is deleted all the same: the runs go on "
        "with the definitions that they have, and what comes to the triggers becomes dead letters."
    ),
    "listVersions": (
        "The first one is what new runs get. A definition that is registered again becomes the first one. At most the "
        "1,000 newest are listed, and can be started by their `version`: of several with one label, the newest."
    ),
    "callWorkflow": (
        "A run is started as by startRun, and the answer is its output, or what a step of type "
        "`respond` answers, with the status and the headers of that step. A run that fails or is cancelled is answered "
        "with 502 and its error. After `timeout_ms` the answer is 202 with its `run_id`, and the run goes on, as it "
        "does when the client leaves. With an Idempotency-Key the same request may be sent again: it gets the answer "
        "of the same run. Location leads to the run; Penstock-Outcome says where the answer comes from."
    ),
    "listRuns": (
        "Out of the run index. It answers at all times and says in Penstock-Index-Lag how far it is behind the "
        "log; a run that was answered with 201 is in it."
    ),
    "startRun": (
        "The run is in the log when the answer comes. With an Idempotency-Key the same request may be sent again "
        "after a lost answer: it gets the same run. A `run_at` more than 1 s ahead schedules the run; the answer "
        "then has `status` scheduled."
    ),
    "startRuns": (
        "All inputs are checked before any run starts: one wrong input refuses them all, named by its place, as in "
        "`input[3]: …`. `run_ids` stand in the order of `inputs`. With an Idempotency-Key the same request may be "
        "sent again: it gets the same runs; another number of inputs is refused."
    ),
    "cancelRuns": (
        "Of runs that are pending, scheduled or running. What has ended meanwhile is in `skipped` with its "
        "reason. More than 1,000 that match are refused: narrow the times, or give a `limit`: the newest so many are "
        "taken then, and `next` is the `cursor` for the others. `dry_run` "
        "answers the same and cancels nothing. With `compensate` the runs undo the steps that have completed, and are "
        "cancelled then."
    ),
    "retryRuns": (
        "Of failed runs. `replay` has the run itself go on at the step that failed, with what was done before "
        "kept; `rerun` starts a new run with the original input. `dry_run` answers the same and starts nothing. "
        "`once` skips runs that were rerun already. With an Idempotency-Key a rerun may be sent again: it gets "
        "the same runs, and what the first request did not come to is started."
    ),
    "retryRun": (
        "The body may be left out: then the run goes on at what failed. With `rerun` a new run is started, and the "
        "answer has its "
        "`new_run_id`. A run that has not failed is 409, and so is a replay of one that has undone its steps."
    ),
    "getRun": (
        "The state after every event that the log holds, with every step. With `wait_ms` the answer waits for the "
        "end of the run, at most so long. Inputs and outputs that are too large for the answer are given by their "
        "size; getStepOutput has them whole."
    ),
    "getStepOutput": "The JSON that the worker gave, byte for byte.",
    "getMapItems": "In order. What waits for `max_concurrency` is queued; `output_bytes` replaces outputs over 4 KiB.",
    "cancelRun": (
        "The run is cancelled when the answer comes: what was ordered is withdrawn, and late answers of workers "
        "change nothing. A run that was cancelled already is 200 again; one that has completed or failed is 409. "
        "With `compensate` the steps that have completed are undone first: the answer then has `status` compensating, "
        "and another cancellation is 409 until the run has ended."
    ),
    "getEvents": (
        "With `Accept: text/event-stream` each event is sent as it is stored, its `id` being the sequence: a "
        "client that was cut off gives the last one as Last-Event-ID and misses nothing. As JSON, what there is "
        "now."
    ),
    "getScheduled": "What was asked for, and when it will start.",
    "unschedule": (
        "Works exactly once: a run that has started, or was cancelled, is 400. The run is then shown as cancelled."
    ),
    "sendSignal": (
        "Any bytes up to 1 MiB, JSON or not; Content-Type is not looked at. A step that waits for the signal gets "
        "them, whether it came before or after. A second signal of the same name replaces the payload."
    ),
    "listApprovals": (
        "Out of the store of what was asked for: a step is in it until somebody decides, its time is over or its "
        "run ends."
    ),
    "decideAsOperator": (
        "Who may use the control plane needs no token. Of all decisions, by token and by operators, exactly one "
        "counts; the others "
        "are 409. `approved_by` is what the caller says, and is not checked."
    ),
    "decide": (
        "The token works once, by whoever sends it first; a second time it is 409. The body may say who decided "
        "and why; the step's output has it."
    ),
    "listTriggers": "With the next instant of those that have one.",
    "createTrigger": (
        "Exactly one of cron, subject, event and webhook says what starts its runs. A trigger of this name is replaced."
    ),
    "getTrigger": "A webhook's secret is never shown, only whether there is one.",
    "putTrigger": "The name is that of the path; one in the body must be the same.",
    "deleteTrigger": "Runs that it has started go on.",
    "fireTrigger": "As if what it waits for had come; also when it is disabled.",
    "testTrigger": (
        "Whether a run would start, with which definition and input, and why not; for cron the next instants."
    ),
    "sendEvent": (
        "Any JSON, stored as `event.<name>` when the answer comes: event triggers start runs on it, in their own time. "
        "With an Idempotency-Key the same request may be sent again after a lost answer: it gets the same `seq`, and "
        "nothing more is stored, whatever its body. Names are chosen by who sends; "
        "those that begin with `webhook.` or `cron.` belong to the service."
    ),
    "receiveWebhook": (
        "The body is checked against the signature in one of the headers, byte for byte as it came, and becomes "
        "the input of the runs that it starts. A delivery that is repeated starts no second run. A form is read as "
        "the JSON that it "
        "stands for, and Slack's challenge is answered."
    ),
    "listDeadLetters": (
        "Tasks whose retries are used up, messages that could not be read, trigger events that could start no run."
    ),
    "getDeadLetter": "With what the worker was given, or what came, and why it was put aside.",
    "discardDeadLetter": "Its run stays as it is.",
    "replayDeadLetter": (
        "As a replay of the run by retryRuns: the step is tried again with a fresh count of retries, and the dead "
        "letter is removed."
    ),
    "listWorkers": (
        "What workers say of themselves. A registration lives for 60 s and is renewed while the worker does."
    ),
    "listTasks": (
        "Task types and groups with a consumer, or with tasks that nobody has asked for: a type without workers "
        "goes on waiting."
    ),
    "connectWorker": (
        "A heartbeat comes every 25 s, and a comment every 5 s. When the stream ends, the registration is removed; "
        "10 s "
        "later the worker's tasks are delivered again, unless it is back. Polling works without it."
    ),
    "pollTasks": (
        "Answers as soon as there is a task of any of the types, at the latest after `timeout_ms`. A task belongs "
        "to its worker until it is resolved, or 5 minutes after the worker's last sign of life (connectWorker says "
        "what is sooner). A "
        "client that has gone loses none."
    ),
    "exchangeTasks": (
        "As many resolveTask as there are entries in `resolve`, then pollTasks, with one request. Each entry stands "
        "for itself: what "
        "is wrong with one is in its place in `resolved`. The answer comes when the poll has ended."
    ),
    "resolveTask": (
        "`complete` and `fail` end it; `pause` gives it back for a while; `checkpoint` and `heartbeat` keep it; "
        "`continue` asks for an agent loop's next iteration. Any front end takes the answer, not only the one that "
        "was polled."
    ),
    "awaitSignal": (
        "Answers as soon as the signal is there, at the latest after `timeout_ms`. The same payload is answered each "
        "time."
    ),
    "sendSignalAsWorker": "As sendSignal, by the bridge's token.",
    "getHealth": "For monitoring: 503, with the reason, while the broker is away or does not store.",
    "getReady": "For load balancers: 200 only while this front end can do all of its work.",
    "getTelemetryHealth": "Advisory, and 200 at all times.",
    "getMetrics": (
        "Every process of the service is asked over the broker, so scrape one front end, or a balancer before them."
    ),
    "getDocument": "With an ETag, for who asks often.",
    "getReference": "One page without scripts.",
}
