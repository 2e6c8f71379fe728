"""A graph as boxes in layers, with lines from each to those that depend on it."""

from __future__ import annotations

from penstock.cli.graph.canvas import DOWN, UP, Canvas
from penstock.cli.graph.layout import Item, Layers

Span = tuple[int, int]


class Bus:
    """The edges from some items of a layer to all of some items of the next: one line across, with a stem to each."""

    def __init__(self, sources: list[Item], targets: list[Item]) -> None:
        self.sources, self.targets = sources, targets
        self.ends: dict[Item, int] = {}

    @property
    def span(self) -> Span:
        columns = [*(item.port for item in self.sources), *self.ends.values()]
        return min(columns), max(columns)

    @property
    def middle(self) -> float:
        """Where it comes from."""
        return sum(item.port for item in self.sources) / len(self.sources)


def drawn(layers: Layers) -> list[str] | None:
    """The rows of the picture; None when some edges cannot be kept apart."""
    canvas, y = Canvas(), 0
    for number, layer in enumerate(layers):
        buses = _buses(layers[number - 1]) if number else []
        if not _find_ends(layer, buses):
            return None
        y = _draw_edges(canvas, buses, y)
        height = max(item.height for item in layer)
        for item in layer:
            _draw_item(canvas, item, y, height)
        y += height
    return list(canvas.rows())


def _buses(layer: list[Item]) -> list[Bus]:
    found: dict[frozenset[int], Bus] = {}
    for item in layer:
        if item.below:
            bus = found.setdefault(frozenset(map(id, item.below)), Bus([], item.below))
            bus.sources.append(item)
    return list(found.values())


def _find_ends(layer: list[Item], buses: list[Bus]) -> bool:
    """Find where each bus comes in to each of its targets: in a column of its own, so that no line lies upon another.
    False when there is none."""
    leaving = {item.port: bus for bus in buses for item in bus.sources}
    for item in layer:
        taken: set[int] = set()
        incoming = sorted((bus for bus in buses if item in bus.targets), key=lambda bus: bus.middle)
        for at, bus in enumerate(incoming):
            wanted = item.center + 2 * at - (len(incoming) - 1)
            free = (x for x in item.columns if x not in taken and leaving.get(x, bus) is bus)
            column = min(free, key=lambda x: (abs(x - wanted), x), default=None)
            if column is None:
                return False
            bus.ends[item] = column
            taken.add(column)
        item.port = item.center if item.labels else next(iter(taken))
    return True


def _draw_edges(canvas: Canvas, buses: list[Bus], y: int) -> int:
    """From row `y` on; returns the row after them."""
    if not buses:
        return y
    tracks = _tracks([bus for bus in buses if bus.span[0] != bus.span[1]])
    arrows = y + len(tracks)
    for row, track in enumerate(tracks, start=y):
        for bus in track:
            _draw_bus(canvas, bus, y, row, arrows)
    for bus in buses:
        for target in bus.targets:
            if bus.span[0] == bus.span[1]:
                canvas.upright(bus.ends[target], y, arrows)
            if target.labels:
                canvas.text(bus.ends[target], arrows, "▼")
    return arrows + 1


def _tracks(buses: list[Bus]) -> list[list[Bus]]:
    """Rows for the lines across, so that none touch; those that turn back least come first."""
    tracks: list[list[Bus]] = []
    for bus in sorted(buses, key=lambda bus: bus.span):
        for track in tracks:
            if all(not _touch(bus.span, other.span) for other in track):
                track.append(bus)
                break
        else:
            tracks.append([bus])
    return tracks


def _touch(one: Span, other: Span) -> bool:
    return one[0] <= other[1] + 1 and other[0] <= one[1] + 1


def _draw_bus(canvas: Canvas, bus: Bus, top: int, row: int, arrows: int) -> None:
    canvas.across(*bus.span, row)
    for source in bus.sources:
        canvas.upright(source.port, top - 1, row)
        canvas.join(source.port, row, UP)
    for column in bus.ends.values():
        canvas.upright(column, row, arrows)
        canvas.join(column, row, DOWN)


def _draw_item(canvas: Canvas, item: Item, y: int, height: int) -> None:
    if not item.labels:
        canvas.upright(item.port, y - 1, y + height)
        return
    inner = item.width - 2
    head = f"─ {item.title} " if len(item.labels) > 1 else ""
    canvas.text(item.x, y, f"┌{head.ljust(inner, '─')}┐")
    for row, label in enumerate(item.labels, start=y + 1):
        canvas.text(item.x, row, f"│ {label.ljust(inner - 2)} │")
    bottom = y + item.height - 1
    canvas.text(item.x, bottom, f"└{'─' * inner}┘")
    if item.below:
        canvas.text(item.port, bottom, "┬")
        if y + height - 1 > bottom:
            canvas.upright(item.port, bottom, y + height)
