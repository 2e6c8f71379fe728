"""Every number of the specification and the protocol, once, with its source. Units and bounds stand last in the
name."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
DAY_S: Final = 24 * 60 * 60

# Names, definitions, payloads, requests
NAME_CHARS_MAX: Final = 128  # Protocol: Names and limits
# Of an execution: planners in planners, an element of a map, a handler (`a.b.c.step.7.on_failure`)
STEP_ID_CHARS_MAX: Final = 640
LIMIT_KEY_CHARS_MAX: Final = 1024  # of a key's value, as text
STEPS_MAX: Final = 1000  # Protocol: Names and limits
LIMITS_MAX: Final = 3  # of runs at a time of one workflow, executions of one step, or rates of either
LIMIT_MAX: Final = 1_000_000  # what one of them allows
PRIORITY_MAX: Final = 100  # and as far below 0
RUN_LABELS_MAX: Final = 16  # of one run
LABEL_VALUE_CHARS_MAX: Final = 256
VERSIONS_LISTED_MAX: Final = 1000  # of one workflow; older definitions stay for the runs that have them
PAYLOAD_BYTES_MAX: Final = 1 * MIB  # Protocol: Names and limits (run input, step output, checkpoint)
ERROR_BYTES_MAX: Final = 8 * KIB  # Protocol: History events (errors and tracebacks)
# A larger output is read from the history: a snapshot of 1,000 steps stays one message
OUTPUT_INLINE_BYTES_MAX: Final = 4 * KIB
OUTPUTS_SHOWN_BYTES_MAX: Final = 8 * MIB  # of those that are read from the history, one answer holds so much
EVENTS_BYTES_MAX: Final = 16 * MIB  # GET /runs/{id}/events: with so much, or one event more, a page of the history ends
LARGE_BODIES_BYTES_MAX: Final = (
    128 * MIB
)  # of inputs, outputs and exports that a front-end process reads and sends at once
LARGE_BODY_WAIT_S_MAX: Final = 30.0  # for others that are read or sent
LARGE_BODY_STALLED_S_MAX: Final = 30.0  # a client that takes nothing for so long gets no more
EVENTS_LISTED_MAX: Final = 10_000
SIGNAL_BYTES_MAX: Final = 1 * MIB  # Spec: Limits, Signal payload
WEBHOOK_BYTES_MAX: Final = 1 * MIB  # Protocol: Webhooks and triggers
BODY_BYTES_MAX: Final = 8 * MIB  # Protocol: Names and limits
BODY_S_MAX: Final = 60.0  # for all of a body: the largest takes that on a line of 1.1 Mbit/s
IMPORT_BYTES_MAX: Final = BODY_BYTES_MAX - 64 * KIB  # POST /runs/import: one message of the broker, with its headers
BULK_RUNS_MAX: Final = 1000  # Spec: Limits, Bulk run inputs
MATCHING_RUNS_MAX: Final = 1000  # Spec: Limits, Matching runs
BATCH_BYTES_MAX: Final = 8 * MIB  # inputs in one atomic batch of a bulk retry: about what the largest request holds
APPROVALS_LISTED_MAX: Final = 1000  # GET /approvals
DEAD_LETTERS_LISTED_DEFAULT: Final = 100  # GET /dead-letters
DEAD_LETTERS_LISTED_MAX: Final = 1000  # GET /dead-letters
RUNS_LISTED_DEFAULT: Final = 1000  # Protocol: HTTP answers, GET /runs
WAIT_MS_MAX: Final = 60_000  # GET /runs/{id}?wait_ms=, as long as a poll for tasks
CALL_MS_DEFAULT: Final = 30_000  # POST /workflows/{name}/call?timeout_ms=
CALL_MS_MAX: Final = 300_000  # POST /workflows/{name}/call?timeout_ms=
RUNS_LISTED_MAX: Final = 10_000  # Protocol: HTTP answers, GET /runs
SEARCH_TEXT_CHARS_MAX: Final = 256  # GET /runs?q=
SUMMARIES_LISTED_DEFAULT: Final = 100  # GET /runs/summaries
SUMMARIES_LISTED_MAX: Final = 1000
ANSWER_AGE_S_MAX: Final = 10  # of an answer that was made for somebody else, if a client allows that (max-age)
ANSWERS_KEPT_BYTES_MAX: Final = 16 * MIB
SEARCH_S_MAX: Final = 5.0  # so long the run index is searched for a list or for counts
STATS_BUCKETS_MAX: Final = 2000  # GET /runs/stats
STATS_WITHIN_MS_MIN: Final = 10  # GET /runs/stats?within_ms=
STATS_WITHIN_MS_MAX: Final = 5000  # as long as a search
STATS_GROUPS_MAX: Final = 500  # GET /runs/stats?by=
STATS_DURATIONS_MAX: Final = 1000  # GET /runs/stats?durations=true: so many runs, the newest, of each group

# Expressions: docs/adr/0020-expressions.md has the measurements
EXPRESSION_BYTES_MAX: Final = 4 * KIB  # text of one expression
EXPRESSION_ITERATIONS_MAX: Final = 10_000  # elements that the macros of one evaluation go through
# Units of work of one evaluation, about 1.5 ns each: so it ends within half a second wherever it runs
EXPRESSION_WORK_MAX: Final = 256 * MIB
PATTERN_STATES_MAX: Final = 10_000  # of a regular expression: counted repetitions multiply them
EXPRESSION_RESULT_BYTES_MAX: Final = 1 * MIB  # as JSON; of a template: all of it
EVALUATION_S_MAX: Final = 30.0  # of a process that evaluates: far beyond what one takes, so it hangs

# Time in a run
SCHEDULE_AHEAD_MIN_S: Final = 1.0  # Spec: Limits, Scheduling threshold
SCHEDULE_AHEAD_S_MAX: Final = 100 * 365 * DAY_S  # the broker's clock ends in 2262, and what is due later fires at once
RETRIES_MAX: Final = 100_000  # Protocol: WorkflowDef, retry.max_attempts
LOOP_ITERATIONS_MAX: Final = 1_000_000  # a bound for max_iterations itself, far beyond any use
RETRY_DELAY_DEFAULT_S: Final = 5.0  # Protocol: WorkflowDef, retries
RETRY_MULTIPLIER_DEFAULT: Final = 2.0  # Protocol: WorkflowDef, retry.multiplier
RETRY_JITTER_RATIO: Final = 0.1  # Protocol: WorkflowDef, retry
APPROVAL_TIMEOUT_DEFAULT_S: Final = 1 * DAY_S  # Protocol: WorkflowDef, approval
SLEEP_S_MAX: Final = 365 * DAY_S
LOOKBACK_S_MAX: Final = DAY_S  # of a step that waits for an event
COMPENSATION_WAIT_S: Final = 5 * 60.0  # for a step without a timeout that ran when its run began to undo its steps
CORRELATION_BYTES_MAX: Final = 4 * KIB  # of the value by which it knows its event
MAP_ITEMS_MAX: Final = 10_000
MAP_ITEMS_DEFAULT: Final = 1000
RUNS_IN_CHAIN_MAX: Final = 16  # a run, its child, and so on
PLANNED_STEPS_MAX: Final = 500  # of a run, by all its planners
PLANNERS_DEPTH_MAX: Final = 3  # a planner that no planner has inserted counts as 1
FRAGMENT_BYTES_MAX: Final = 256 * KIB  # of a run, by all its planners: they are part of its state
APPROVAL_TIMEOUT_S_MAX: Final = 7 * DAY_S  # Protocol: WorkflowDef, approval
APPROVAL_TOKEN_BYTES: Final = 32  # Protocol: HTTP answers, approval token
STICKY_FALLBACK_S: Final = 5.0  # Protocol: Tasks, sticky soft

# Workers and the bridge
WORKER_TTL_S: Final = 60  # Spec: Limits, Worker registration TTL
WORKER_HEARTBEAT_S: Final = 30.0  # Spec: Limits, Worker heartbeat interval, direct
WORKER_TASKS_DEFAULT: Final = 1  # Protocol: Buckets, max_tasks
BRIDGE_HEARTBEAT_S: Final = 25.0  # Spec: Limits, Worker heartbeat interval, bridge stream
BRIDGE_COMMENT_S: Final = 5.0  # Protocol: HTTP answers, SSE of connect
BRIDGE_LEASE_S: Final = 5 * 60.0  # Protocol: HTTP answers, last sign of life
EXPORT_BYTES_MAX: Final = 256 * MIB  # of the events of a run that is exported as one document
EVENT_KEY_TTL_S: Final = 30.0 * DAY_S  # what an idempotency key of an event stands for is known so long
RERUN_KEY_TTL_S: Final = 30.0 * DAY_S  # what an idempotency key of a bulk rerun stands for is known so long
BRIDGE_AWAY_S: Final = 10.0  # Protocol: HTTP answers, how long a broken connect stream may be away
BRIDGE_LEASE_TTL_S: Final = 2 * BRIDGE_LEASE_S  # an answer that comes later than this is too late
BRIDGE_CLAIM_S: Final = 10.0  # what an answer may take; a process that died over it holds the task no longer
POLL_TASKS_MAX: Final = 1000  # tasks that one poll may ask for
# With so much, or one task more, a poll's answer is complete: about what the largest request holds
POLL_BYTES_MAX: Final = 8 * MIB
# Of tasks that a worker or a front end has in hand: with so much it asks for no more, as a shard does
TASKS_BYTES_MAX: Final = 64 * MIB
TASK_TYPES_MAX: Final = 100  # task types of one poll, and of one worker
POLLED_QUEUES_MAX: Final = 4096  # task queues that one front-end process reads for its pollers
STICKY_CONSUMER_S: Final = 60 * 60.0  # a worker's own consumers go when it has not asked for so long; its tasks stay
HTTP_SLOTS_DEFAULT: Final = 100  # requests that a worker of http steps makes at one time
HTTP_SLOTS_MAX: Final = 1000
HTTP_ALLOW_MAX: Final = 1000  # entries of http_allow
POLL_MS_MAX: Final = 60_000  # Spec: Limits, Poll timeout
PAUSE_MS_MAX: Final = 3_600_000  # Spec: Limits, Pause duration
ACK_WAIT_S: Final = 30.0  # Protocol: Tasks
DELIVERIES_MAX: Final = 10  # Protocol: Tasks
START_HELD_BACK_S: Final = 0.025  # Protocol: History events, the start of an execution that is answered soon

# Streams
DEDUP_WINDOW_S: Final = 5.0  # Spec: Limits, Deduplication window; never below 5 s
DEDUP_WINDOW_BROKER_S: Final = 120.0  # Spec: Limits, Deduplication window, broker default
DEAD_LETTERS_AGE_S_MAX: Final = 30 * DAY_S  # Spec: Limits, DEAD_LETTERS retention
TELEMETRY_AGE_S_MAX: Final = 7 * DAY_S  # Spec: Limits, TELEMETRY retention
TELEMETRY_METRICS_S: Final = 10.0  # how often each process writes its numbers there
TELEMETRY_BYTES_MAX: Final = 1 * GIB  # Spec: Limits, TELEMETRY retention
STORE_BYTES_DEFAULT: Final = 10 * GIB  # Spec: Limits, Storage limit
LEAF_REMOTES_MAX: Final = 10  # Spec: Limits, Leaf remotes

# What steps say while they run: docs/adr/0024-logs-and-streams.md has the reasons
SAID_AGE_S_MAX: Final = 7 * DAY_S  # log lines and chunks
SAID_BYTES_MAX: Final = 1 * GIB  # of each of both streams; in a small embedded store a tenth of it
SAID_MESSAGES_MAX: Final = 100_000  # of one step, in each of both streams: the oldest go first
SAID_MESSAGE_BYTES_MAX: Final = 256 * KIB
ENTRIES_MAX: Final = 1000  # lines or chunks in one message
LOG_LINE_BYTES_MAX: Final = 16 * KIB  # text and fields
CHUNK_BYTES_MAX: Final = 64 * KIB
PROGRESS_TEXT_CHARS_MAX: Final = 500
PROGRESS_AGE_S_MAX: Final = 60 * 60.0  # a step that says nothing for so long shows no progress
PROGRESS_BYTES_MAX: Final = 16 * MIB
PROGRESS_STEPS_MAX: Final = 20_000  # whose progress a front-end process knows
PROGRESS_EVERY_S: Final = 0.25  # at most one message of a step
# What one execution may say: at once, on and on, and in all until it is slowed down for good
SAID_AT_ONCE_BYTES: Final = 8 * MIB
SAID_BYTES_PER_S: Final = 1 * MIB
SAID_IN_ALL_BYTES: Final = 32 * MIB
SAID_AFTER_THAT_BYTES_PER_S: Final = 1 * KIB
ENTRY_OVERHEAD_BYTES: Final = 64  # that each line or chunk counts more than its JSON has
LOGS_LISTED_DEFAULT: Final = 1000  # GET /runs/{id}/logs
LOGS_LISTED_MAX: Final = 10_000

# Shards: docs/adr has the measurements
# What waits in the embedded broker for one client that reads too slowly: beyond it, the broker closes the connection
CLIENT_PENDING_BYTES_MAX: Final = 256 * MIB
PULL_BYTES_MAX: Final = 1 * MIB  # of one partition, that a shard requests at once; a larger event comes alone
PARTITIONS: Final = 32  # for good: a run's partition never changes
ACK_HELD_BACK_S: Final = 3.0  # one acknowledgement for many events; what came within it comes again after a crash
# The state of a run that needs a snapshot is written at most this long after it changed, at once when it has ended
SNAPSHOT_AFTER_S: Final = 3.0
WAIT_CHECKPOINT_S: Final = 10.0  # what was sent within it is read again for the waits of a shard that died
TIMER_DURABLE_AFTER_S: Final = 2.0  # a deadline that is still open then goes to the broker
ACTORS_RESIDENT_MAX: Final = 25_000  # beyond it, idle runs leave memory at once
ACTOR_IDLE_S: Final = 30.0  # an idle run leaves memory after this
UPGRADE_CHECK_S: Final = 30.0  # a run that only a newer version can read is checked again by its owner of that time
EVENT_FAILURES_MAX: Final = 3  # the same event failing so often is dead-lettered and skipped

# Who owns the partitions: docs/adr/0014 has the reasons
LEASE_S: Final = 3.0  # a shard that could not renew its membership for so long stops its work
LEASE_RENEW_S: Final = 0.5  # how often it is renewed
SILENCE_S: Final = 3.25  # then others take its partitions over
MEMBER_TTL_S: Final = 60.0  # a member that nobody is there to remove is forgotten by the broker
HAND_OVER_S_MAX: Final = 3.0  # for finishing the work on runs that move to another shard; then they go on from the log
DRAINED_TTL_S: Final = 1.0 * DAY_S  # an engine that was drained owns nothing until it ends, or for so long

# Limits: each scope has one document, which the owners of its limits have in memory
LIMIT_WORKFLOWS_MAX: Final = 100  # that have registered the same scope; the oldest is forgotten
LIMIT_OVERRIDES_MAX: Final = 1000  # of single keys of a scope
LIMIT_SCOPE_CHARS_MAX: Final = 800  # a step's own is the name of the workflow, a dot, and the step's id
LIMITS_LISTED_DEFAULT: Final = 100
LIMITS_LISTED_MAX: Final = 1000
LIMIT_NAMED_SHORT: Final = 10  # holders, and waiting ones, of each limit in a list
LIMIT_NAMED_MAX: Final = 1000  # of one limit
LIMIT_KEYS_SHOWN_MAX: Final = 100

# Keys, sessions and the audit log
API_KEYS_MAX: Final = 1000  # they are one document, which every front-end process has in memory
API_KEY_BYTES: Final = 32  # random
API_KEY_EXPIRES_S_MAX: Final = 10 * 365 * DAY_S
KEYS_POLL_S: Final = 0.5  # how often a process reads the keys again, besides when it is told of a change
KEYS_KNOWN_S: Final = 3.0  # keys that were read longer ago say nothing of one that is not among them
SESSION_S: Final = 12 * 60 * 60.0  # a sign-in lasts so long
SESSION_CHECK_S: Final = 0.5  # a session that was read longer ago is read again
AUDIT_AGE_S_MAX: Final = 90 * DAY_S
AUDIT_LISTED_DEFAULT: Final = 100
AUDIT_LISTED_MAX: Final = 1000
REFUSALS_BYTES_MAX: Final = 64 * MIB  # the oldest go first
REFUSALS_BURST: Final = 100  # that one process writes down at once; then REFUSALS_PER_S, the others are only counted
REFUSALS_PER_S: Final = 5.0

# Webhooks and the process
TRIGGERS_MAX: Final = 1000  # each costs every engine a subscription
WEBHOOK_AGE_S_MAX: Final = 5 * 60.0  # Protocol: Webhooks and triggers, webhook-timestamp
SHUTDOWN_S: Final = 15.0  # Spec: Limits, Shutdown, hard deadline
HTTP_SHUTDOWN_S: Final = 5.0  # Spec: Limits, Shutdown, HTTP
