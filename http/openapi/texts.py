"""What each operation does, for readers of the API's document: one text for each operation, by its name."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS: Mapping[str, str] = {
    "listAudit": (
        "What a key, a token or an approval's token has changed, except starts, signals and events, whose own log says "
        "`by` whom; and every 403. Each change is written down before it is made, with the outcome `unknown`, and is "
        "refused if that is not possible. Entries are kept for 90 days. Of many refusals at once, some are only "
        "counted, in `more` of the next one."
    ),
    "signIn": (
        "For browsers: the key is in the body, or borne as a token, and the answer sets a cookie that stands for it, "
        "for 12 hours and no longer than the key is valid. Changes with the cookie need `csrf_token` of the answer as "
        "the header X-CSRF-Token. 409 while the service needs no key."
    ),
    "getSession": "Name and scope of the key, also with a bearer token; the token for changes if a cookie was sent.",
    "signOut": "The session ends, and its cookie is refused from then on. Needs the header X-CSRF-Token.",
    "listKeys": "Names, scopes and times. The keys themselves are not stored.",
    "createKey": (
        "The answer has the key, and no later one has it: only a hash is stored. `scope` is read, operate or admin; "
        "with `workflow`, a pattern such as `order-*`, the key is for these workflows only. While the service has "
        "neither a key nor SERVICE_API_TOKEN, the first one must have scope admin; from then on a key is needed. A "
        "name that is taken is 409."
    ),
    "revokeKey": (
        "Every process refuses it within a second. The last key of scope admin cannot be revoked (409) unless the "
        "service has SERVICE_API_TOKEN."
    ),
    "listWorkflows": (
        "Each name once, with the definition that new runs get. With `summary`, its name, version, the beginning of "
        "its description, the number of its steps, and how many of its task types no worker serves now."
    ),
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
        "log; a run that was answered with 201 is in it. `label` may be given several times, a key once; the first "
        "colon ends the key. `q` takes upper and lower case for the same."
    ),
    "getRunStats": (
        "Out of the run index, as listRuns, and for the same filters. A bucket begins at a multiple of `bucket`, and "
        "has the runs that were created from `at` on; those without runs are left out. Without `bucket` there is one, "
        "which begins with the oldest run. More than 2000 buckets are refused, and so is a filter whose runs cannot "
        "be counted within 5 s. With `by` there are also `groups`, the same numbers of each workflow or trigger that "
        "has such runs, at most 500. With `durations=true`, `durations` says how long the newest 1000 of the "
        "completed runs took from start to end, of all and of each group. With `within_ms` the runs are counted from "
        "the newest one backwards for so long, and `complete` says whether these are all; if not, those that were "
        "created from `since` on are. It goes without `by` and `durations`, which are about all runs."
    ),
    "listSummaries": (
        "The runs that listRuns gives, each in short: numbers of its steps by status, the beginning of its input and "
        "of its error. With `explain`, the first reason for which a run does not go on, as explainRun says it, of at "
        "most 100 runs and for at most 1 s: the newest come first, and the others have no `waiting`. With `held_up`, "
        "only runs that somebody has to act on; a page looks through at most 200 runs that have not ended, so it may "
        "have few or none and a Link to the next one. Who asks often allows an answer that was made for others by "
        "max-age."
    ),
    "startRun": (
        "The run is in the log when the answer comes. With an Idempotency-Key the same request may be sent again "
        "after a lost answer: it gets the same run. A `run_at` more than 1 s ahead schedules the run; the answer "
        "then has `status` scheduled. `warnings` names task types that no worker serves now; it is left out without "
        "any."
    ),
    "startRuns": (
        "All inputs are checked before any run starts: one wrong input refuses them all, named by its place, as in "
        "`input[3]: …`. `run_ids` stand in the order of `inputs`. With an Idempotency-Key the same request may be "
        "sent again: it gets the same runs; another number of inputs is refused."
    ),
    "cancelRuns": (
        "Of runs that are pending, scheduled or running. The filters are those of listRuns, or `run_ids`; at least one "
        "is needed, and without `workflow_id` the runs of all workflows that the caller may see are meant. What has "
        "ended meanwhile is in `skipped` with its reason. More than 1,000 that match are refused: narrow the times, or "
        "give a `limit`: the newest so many are taken then, and `next` is the `cursor` for the others. `dry_run` "
        "answers the same and cancels nothing. With `compensate` the runs undo the steps that have completed, and are "
        "cancelled then."
    ),
    "retryRuns": (
        "Of failed runs; the filter is that of cancelRuns, and `rerun` needs a `workflow_id`. `replay` "
        "has the run itself go on at the step that failed, with what was done before "
        "kept; `rerun` starts a new run with the original input. `dry_run` answers the same and starts nothing. "
        "`once` skips runs that were rerun already. With an Idempotency-Key a rerun may be sent again: it gets "
        "the same runs, and what the first request did not come to is started."
    ),
    "retryRun": (
        "The body may be left out: then the run goes on at what failed. With `rerun` a new run is started, and the "
        "answer has its "
        "`new_run_id`. A run that has not failed is 409, and so is a replay of one that has undone its steps."
    ),
    "diffRuns": (
        "Times, ids of runs and who carried a step out are shown and make no difference. The runs may be of different "
        "workflows."
    ),
    "getGraph": (
        "With planned steps, handlers and compensations. A planner is followed by its fragment, and that by what "
        "depends on the planner."
    ),
    "exportRun": "Each event has its sequence and the time at which it was stored. 413: more than 256 MiB of events.",
    "importRun": (
        "The body is what exportRun gives. It is stored as a record under its own run_id, with `imported: true`: all "
        "reads of runs work on it and lists have it, nothing changes it, and each attempt is 409. An id that a run has "
        "is 409, too. All that is wrong is listed, with its place. 413: more than 8 MiB less 64 KiB."
    ),
    "rerunRun": (
        "Of a run that has ended; another one is 409. The new run has the same definition (with `latest` the "
        "newest) and input. With `from`, all that had completed and does not depend on that step is taken over: "
        "outputs, elements of maps, plans of planners. The rest is carried out. `outputs` replaces outputs that "
        "are taken over. A run that has undone its steps takes over nothing: `from` is 409 then. The new run shows "
        "`rerun_of` and `rerun_from`."
    ),
    "retryStep": (
        "A failed run goes on at this step, as with retryRun. Of a step that waits for its next attempt, the wait "
        "ends: `attempt` begins now. Any other step is 409."
    ),
    "skipStep": (
        "The step is `completed` with this output, whatever became of its attempts: what was ordered is withdrawn, "
        "a child is cancelled, late answers of workers change nothing. A failed run goes on. A handler that is "
        "completed so has its step recover. A step that has completed, or whose dependencies have not, is 409."
    ),
    "rerunRuns": (
        "Of runs that have ended: `status` says which, failed ones without it. The rest is as in rerunRun, for "
        "each of up to 1,000 runs. Those that cannot be started again are in `skipped` with the reason. With an "
        "Idempotency-Key the request may be sent again: it gets the same runs, and what the first one did not come "
        "to is started."
    ),
    "getRun": (
        "The state after every event that the log holds, with every step. With `wait_ms` the answer waits for the "
        "end of the run, at most so long. Inputs and outputs that are too large for the answer are given by their "
        "size; getStepOutput has them whole."
    ),
    "explainRun": (
        "Out of the log and live facts: who serves the task types, what the workers last said, how far the engine is. "
        "Each reason has a sentence for people with the way out. A step may have several; those of the whole run, and "
        "`paused`, come first. `waiting` is empty for a run that has ended, and while workers carry it out."
    ),
    "getStepOutput": "The JSON that the worker gave, byte for byte.",
    "getStepCheckpoint": (
        "What the worker has kept for the next attempt, and when: the latest only. 404 without one, and once the run "
        "has ended. `checkpoint` is left out of one over `payload_max`, and of one that is no JSON."
    ),
    "getStepInput": (
        "Worked out from the run as it was when the execution began: the outputs before the step, or what its `with` "
        "says. A step that waits for others has none yet."
    ),
    "getMapItems": "In order. What waits for `max_concurrency` is queued; `output_bytes` replaces outputs over 4 KiB.",
    "cancelRun": (
        "The run is cancelled when the answer comes: what was ordered is withdrawn, and late answers of workers "
        "change nothing. A run that was cancelled already is 200 again; one that has completed or failed is 409. "
        "With `compensate` the steps that have completed are undone first: the answer then has `status` compensating, "
        "and another cancellation is 409 until the run has ended."
    ),
    "getLogs": (
        "In the order in which the lines were stored; `seq` is the place of a line, and the `id` of its event. With "
        "`Accept: text/event-stream` the lines come as events `log`, from the first one on and live, until the step "
        "or the run has ended: the event `end` says with which status. `step` takes what is below a step, too, such "
        "as the elements of a map. Lines are kept for 7 days. A line that says how many were dropped stands where a "
        "step wrote too many."
    ),
    "getStream": (
        "An event `chunk` for each chunk, from the first one on, also for who comes late: `{step_id, attempt, data}`. "
        "The chunks of the next attempt have another `attempt`; when a worker dies, those of its task's next delivery "
        "have `delivery`. `dropped` says how many chunks "
        "are missing of a step that streamed too much. The event `end` says with which status the step, or the run, "
        "has ended. A client that was cut off gives the last `id` as Last-Event-ID."
    ),
    "pauseRun": (
        "What runs finishes, nothing new begins: queued tasks are withdrawn, what comes due waits, the timeout of "
        "the workflow stands still. `status` stays; `paused_at` shows since when. A run that is paused already is 200 "
        "again, one that has ended is 409. With `children`, the runs that its steps wait for are paused, and theirs."
    ),
    "pauseRuns": (
        "Of runs that are pending, scheduled, running or compensating, also those that are paused already. What has "
        "ended meanwhile is in `skipped` with its reason. The filter is that of cancelRuns."
    ),
    "resumeRuns": (
        "A run that matches and is not paused is in `skipped`, and so is one that has ended meanwhile. The filter is "
        "that of cancelRuns."
    ),
    "pruneRuns": (
        "Of runs that have ended, those that match are removed for good, with all that is stored of them: from the "
        "answer on they are 404, and the space goes soon after. In `skipped` are those that stay, with the reason: a "
        "child whose parent has not ended, what has children or reruns that have not ended, and what has just "
        "changed. At least one condition is needed; the filter is that of cancelRuns beyond that."
    ),
    "resumeRun": (
        "What was withdrawn is queued again, what has come due meanwhile goes off. A run that is not paused is 200: "
        "there is nothing to do. With `children` the runs that its steps wait for go on, too, and theirs."
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
        "Exactly one of cron, subject, event, webhook and http says what starts its runs. With `debounce` or `batch`, "
        "several events of a subject, event or webhook start one. A trigger of this name is replaced."
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
        "later the worker's tasks are delivered again, unless it is back. Polling works without it. An event `cancel` "
        "names a task whose result is not wanted any more."
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
        "is wrong with one is in its place in `resolved`. Only a `log` or `stream` behind one of its task that is 503 "
        "is 503, too. The answer comes when the poll has ended."
    ),
    "resolveTask": (
        "`complete` and `fail` end it; `pause` gives it back for a while; `checkpoint` and `heartbeat` keep it; "
        "`continue` asks for an agent loop's next iteration. Any front end takes the answer, not only the one that "
        "was polled. `checkpoint` and `heartbeat` of a task that was given up (cancelled, out of time) are 409."
    ),
    "awaitSignal": (
        "Answers as soon as the signal is there, at the latest after `timeout_ms`. The same payload is answered each "
        "time."
    ),
    "sendSignalAsWorker": "As sendSignal, by the bridge's token.",
    "getHealth": "For monitoring: 503, with the reason, while the broker is away or does not store.",
    "getReady": "For load balancers: 200 only while this front end can do all of its work.",
    "listLimits": (
        "The busiest first; then those that are registered, and that nobody uses. Of each, ten holders and ten who"
        " wait are named. A limit with a key stands here once for each key that is in use. Needs a key without a "
        "pattern of workflows, as all of /limits."
    ),
    "getLimit": (
        "`holders` has at most 1,000, the oldest first, and `waiting` as many, as they are served. A rate has no "
        "holders: it has `tokens`. Without `key` it is the limit of those without a key, and `keys` has the "
        "busiest keys. Where a scope has limits of several kinds, `kind` says which one."
    ),
    "setLimit": (
        "It counts at once, also for what waits, instead of what is registered, until it is taken back: for one "
        "`key`, or for all, also those to come. `limit` for what is held, `rate_limit` for a rate. A limit that is"
        " lowered ends nothing: nobody begins until enough have ended. 0 lets nothing begin."
    ),
    "resetLimit": (
        "What is registered counts again. With `key`, the override of that key only. 404 if nothing is overridden."
    ),
    "getBroker": (
        "The nodes that have streams of the service, and of each stream its size, its leader and how far its copies "
        "are. `fsync` is known of an embedded broker only."
    ),
    "getSettings": (
        "As `penstock config` shows them, of the running service: the value as text, and where it came from. Of "
        "secrets only `(set)` is said."
    ),
    "getTelemetryHealth": "Advisory, and 200 at all times.",
    "examineService": (
        "Each check is carried out now: what the broker promises and stores, clocks, disk, engines, the run index, "
        "consumers, task types without workers, dead letters, versions. A finding says what is wrong and what can be "
        "done. Takes about half a second, most of it to wait for the answers of all processes."
    ),
    "getMetrics": (
        "Every process of the service is asked over the broker, so scrape one front end, or a balancer before them."
    ),
    "getDocument": "With an ETag, for who asks often.",
    "getDefinitionSchema": (
        "JSON Schema 2020-12. An editor that is given its address completes names and marks what is wrong; it asks "
        "without a token. Rules between steps, and expressions, are checked when a definition is registered."
    ),
    "getReference": "One page without scripts.",
}
