"""Everything that is stored, behind one connection: each process of the service opens one Store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.broker import names
from penstock.broker.archive.archive import Archive
from penstock.broker.limits.limit_log import LimitLog
from penstock.broker.limits.questions import LimitQuestions
from penstock.broker.live.progress_board import ProgressBoard
from penstock.broker.live.said import SaidStream
from penstock.broker.nats.batch import Groups
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.connection import Broker, connect
from penstock.broker.nats.direct import DirectReader, open_reader
from penstock.broker.nats.publisher import Publisher, open_publisher
from penstock.broker.records.api_keys import ApiKeys
from penstock.broker.records.audit import Audit
from penstock.broker.records.definitions import Definitions
from penstock.broker.records.event_waits import WaitRecords
from penstock.broker.records.imports import Imports
from penstock.broker.records.leases import Leases
from penstock.broker.records.limit_configs import LimitConfigs
from penstock.broker.records.owners import Owners
from penstock.broker.records.past_states import EndedRuns, PastStates
from penstock.broker.records.pauses import Pauses
from penstock.broker.records.run_data import RunData
from penstock.broker.streams.consumers import Consumers
from penstock.broker.streams.dead_letters import DeadLetters
from penstock.broker.streams.events import Events
from penstock.broker.streams.former_names import FormerNames
from penstock.broker.streams.history import History
from penstock.broker.streams.schedules import Schedules
from penstock.broker.streams.sticky_tasks import StickyTasks
from penstock.broker.streams.tasks import Tasks
from penstock.broker.streams.telemetry import Telemetry
from penstock.broker.triggers.batches import TriggerBatches
from penstock.broker.triggers.captures import Captures
from penstock.broker.triggers.sources import Sources
from penstock.broker.triggers.triggers import Triggers
from penstock.config.settings import BrokerSettings
from penstock.telemetry.meters import Meters


class Store:
    """One of each, all with the same connection."""

    def __init__(
        self,
        broker: Broker,
        publisher: Publisher,
        reader: DirectReader,
        meters: Meters,
        history_age_s_max: float | None = None,
        archive_after_s: float | None = None,
        *,
        synced: bool = False,
    ) -> None:
        """`synced`: the broker syncs each write to the disk, so tasks are stored in groups."""
        self.broker, self.publisher, self.reader, self.meters = broker, publisher, reader, meters
        self.telemetry = Telemetry(broker, meters)
        self.archive = Archive(broker, publisher, reader, archive_after_s)
        self.history = History(broker, publisher, reader, history_age_s_max, self.archive)
        self.consumers = Consumers(broker)
        self.owners = Owners(self.bucket(names.ENGINES), broker)
        self.tasks = Tasks(broker, publisher, reader, Groups(broker, publisher) if synced else None)
        self.sticky_tasks = StickyTasks(broker)
        self.former_names = FormerNames(broker, publisher, reader)
        self.dead_letters = DeadLetters(broker, publisher, reader)
        self.runs = self.bucket(names.RUNS)
        self.rerun_keys = self.bucket(names.RERUN_KEYS)
        self.event_keys = self.bucket(names.EVENT_KEYS)
        self.workers = self.bucket(names.WORKERS)
        self.signals = self.bucket(names.SIGNALS)
        self.checkpoints = self.bucket(names.CHECKPOINTS)
        self.pauses = Pauses(self.checkpoints)
        self.leases = Leases(self.bucket(names.BRIDGE_LEASES), broker, publisher)
        self.sticky_bindings = self.bucket(names.STICKY_BINDINGS)
        self.approval_tokens = self.bucket(names.APPROVAL_TOKENS)
        self.schedules = Schedules(publisher, reader)
        self.events = Events(broker, publisher, reader)
        self.event_waits = WaitRecords(self.bucket(names.EVENT_WAITS), publisher)
        self.triggers = Triggers(self.bucket(names.TRIGGERS))
        self.batches = TriggerBatches(broker, publisher, reader)
        captures = Captures(self.bucket(names.TRIGGERS), broker)
        self.sources = Sources(broker, self.events, captures, self.batches)
        self.limit_log = LimitLog(broker, publisher, reader)
        self.limit_questions = LimitQuestions(broker, self.limit_log)
        self.audit = Audit(broker, publisher, reader)
        self.sessions = self.bucket(names.SESSIONS)
        self.api_keys = ApiKeys(self.bucket(names.API_KEYS))
        self.definitions = Definitions(self.bucket(names.DEFINITIONS))
        self.imports = Imports(self.bucket(names.IMPORTS))
        self.limit_configs = LimitConfigs(self.bucket(names.LIMIT_CONFIGS))
        self.logs = SaidStream(names.LOGS, names.log_subject, broker, publisher, reader)
        self.chunks = SaidStream(names.CHUNKS, names.chunk_subject, broker, publisher, reader)
        self.progress = ProgressBoard(broker, reader)
        self.run_data = RunData(broker, reader, publisher)
        self.past_states = PastStates()
        self.ended_runs = EndedRuns()

    def bucket(self, name: str) -> Bucket:
        return Bucket(names.bucket_stream(name), names.key_subject(name, ""), self.broker, self.publisher, self.reader)


@asynccontextmanager
async def open_store(
    settings: BrokerSettings, name: str, timeout_s: float = 10.0, meters: Meters | None = None
) -> AsyncIterator[Store]:
    """A store for the time of the block; `name` is shown in the broker's monitoring. Raises Unavailable.

    Metrics go to `meters`, by default the store's own.
    """
    meters = meters or Meters()
    async with (
        connect(settings, name, timeout_s) as broker,
        open_publisher(broker, meters) as publisher,
        open_reader(broker) as reader,
    ):
        meters.reading("penstock_broker_connected", lambda: float(broker.connected))
        meters.reading("penstock_broker_reconnects_total", lambda: broker.reconnects)
        synced = settings.embedded and settings.fsync == "always"
        yield Store(broker, publisher, reader, meters, settings.history_max_age, settings.archive_after, synced=synced)
