"""The elements of a map, in few bytes each: a map of 10,000 is one step of one run, and its snapshot is written often.

What an element has brought (its output, its error, who carried it out) stays in the history, in the events whose
sequences are kept here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from itertools import islice

from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX

CHUNK = 128  # one chunk is copied for each event, and the tuple of chunks


class ItemStatus(IntEnum):
    """As it stands in a snapshot. WAITING: not ordered yet, because `max_concurrency` others are out."""

    WAITING = 0
    QUEUED = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5


class Element(Struct, frozen=True, array_like=True, gc=False):
    """`begun` is the sequence of its last `step.started` (0: none, or the end says when it began), `ended` that of the
    event that ended it, counted from `begun`. `due` is its deadline or the time of its retry, in s since the epoch (0:
    none). `base` are the attempts from before the run was resumed."""

    status: ItemStatus = ItemStatus.WAITING
    attempts: int = 0
    begun: int = 0
    ended: int = 0
    due: float = 0.0
    base: int = 0


WAITING_ELEMENT = Element()
RUNNING, CANCELLED = ItemStatus.RUNNING, ItemStatus.CANCELLED
ENDED = frozenset({ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.CANCELLED})


class Items(Struct, frozen=True, omit_defaults=True):
    """All elements of a map, `counts` of them by ItemStatus; `next` is the first that was never ordered.

    `outputs` are the outputs of those that completed, as long as all of them together are small; None: they are in the
    history only. `output_bytes` are those of all outputs. `failed` is the element with which the map failed. `wraps`:
    the outputs stand in objects that say whether the element completed.
    """

    total: int
    chunks: tuple[tuple[Element, ...], ...]
    counts: tuple[int, ...]
    next: int = 0
    outputs: dict[int, Raw] | None = None
    output_bytes: int = 0
    failed: int | None = None
    wraps: bool = False

    def get(self, number: int) -> Element:
        return self.chunks[number // CHUNK][number % CHUNK]

    def put(self, number: int, element: Element) -> Items:
        """The items with this element in place of the one that is there."""
        at, within = divmod(number, CHUNK)
        chunk, chunks, counts = list(self.chunks[at]), list(self.chunks), list(self.counts)
        counts[chunk[within].status] -= 1
        counts[element.status] += 1
        chunk[within] = element
        chunks[at] = tuple(chunk)
        return replace(self, chunks=tuple(chunks), counts=tuple(counts))

    def kept(self, number: int, output: Raw | None, size: int) -> Items:
        """The items with a copy of this output of an element beside the others, as long as they are small together."""
        outputs = self.outputs
        if outputs is not None:
            small = output is not None and self.output_bytes + size <= OUTPUT_INLINE_BYTES_MAX
            outputs = {**outputs, number: output.copy()} if small and output is not None else None
        return replace(self, outputs=outputs, output_bytes=self.output_bytes + size)

    def ordered(self, most: int) -> tuple[Items, list[int]]:
        """Queue the next execution of up to `most` elements that wait; returns their numbers."""
        numbers = list(islice(self._waiting(), most)) if self.next < self.total else []
        if not numbers:
            return self, []
        items = self._queued(numbers) if len(numbers) < CHUNK else self._queued_at_once(numbers)
        return replace(items, next=numbers[-1] + 1), numbers

    def _queued(self, numbers: list[int]) -> Items:
        items = self
        for number in numbers:
            items = items.put(number, _queued(items.get(number)))
        return items

    def _queued_at_once(self, numbers: list[int]) -> Items:
        chunks = [list(chunk) for chunk in self.chunks]
        for number in numbers:
            at, within = divmod(number, CHUNK)
            chunks[at][within] = _queued(chunks[at][within])
        return self._with(tuple(map(tuple, chunks)))

    def _waiting(self) -> Iterator[int]:
        numbers = range(self.next, self.total)
        return (number for number in numbers if self.get(number).status == ItemStatus.WAITING)

    def cancelled(self) -> Items:
        """The items of a map that is over: what has not ended never will."""
        return self._each(_cancelled)

    def cut_short(self) -> Items:
        """As `cancelled`, of elements that can be undone: those that were running can still be told from the others."""
        return self._each(_cut_short)

    def waited_for(self, at: float, due: float) -> Items:
        """The items of a map whose run undoes its steps from `at` on. What runs, or ran when the map failed, runs until
        its deadline, or until `due` if it has none left; what else has not ended never will."""
        return self._each(partial(_waited_for, at, due))

    @property
    def runs(self) -> bool:
        """Whether an element runs, or ran when the map failed."""
        return any(_runs(element) for _, element in self.numbered())

    def afresh(self) -> Items:
        """The items of a map that begins again: what has not completed waits, with its attempts counted."""
        waits = self._each(_afresh)
        outputs = (
            None
            if self.outputs is None
            else {
                number: output
                for number, output in self.outputs.items()
                if self.get(number).status == ItemStatus.COMPLETED
            }
        )
        return replace(waits, next=0, failed=None, outputs=outputs)

    def _each(self, change: Callable[[Element], Element]) -> Items:
        return self._with(tuple(tuple(map(change, chunk)) for chunk in self.chunks))

    def _with(self, chunks: tuple[tuple[Element, ...], ...]) -> Items:
        found = Counter(element.status for chunk in chunks for element in chunk)
        return replace(self, chunks=chunks, counts=tuple(found[status] for status in ItemStatus))

    def count(self, *statuses: ItemStatus) -> int:
        return sum(self.counts[status] for status in statuses)

    @property
    def all_ended(self) -> bool:
        """Whether all have completed, or failed."""
        return self.counts[ItemStatus.COMPLETED] + self.counts[ItemStatus.FAILED] == self.total

    @property
    def out(self) -> int:
        """How many are queued or running."""
        return self.counts[ItemStatus.QUEUED] + self.counts[ItemStatus.RUNNING]

    def numbered(self) -> Iterator[tuple[int, Element]]:
        for at, chunk in enumerate(self.chunks):
            yield from enumerate(chunk, at * CHUNK)


def _queued(before: Element) -> Element:
    return Element(ItemStatus.QUEUED, before.attempts + 1, base=before.attempts)


def _cancelled(element: Element) -> Element:
    return element if element.status in ENDED else replace(element, status=CANCELLED, due=0.0)


def _cut_short(element: Element) -> Element:
    found = _cancelled(element)
    return found if element.status in ENDED or element.status == ItemStatus.RUNNING else replace(found, begun=0)


def _waited_for(at: float, due: float, element: Element) -> Element:
    if not _runs(element):
        return _cut_short(element)
    return replace(element, status=RUNNING, due=element.due if element.due > at else due)


def _runs(element: Element) -> bool:
    was_cut_short = element.status == ItemStatus.CANCELLED and element.begun > 0 and not element.ended
    return element.status == ItemStatus.RUNNING or was_cut_short


def _afresh(element: Element) -> Element:
    if element.status == ItemStatus.COMPLETED:
        return element
    return Element(attempts=element.attempts, base=element.attempts)


def new_items(total: int, wraps: bool = False) -> Items:
    """As many elements, none of them ordered."""
    full, rest = divmod(total, CHUNK)
    chunks = ((WAITING_ELEMENT,) * CHUNK,) * full + (((WAITING_ELEMENT,) * rest,) if rest else ())
    return Items(total=total, chunks=chunks, counts=(total, 0, 0, 0, 0, 0), outputs={}, wraps=wraps)
