"""Where the boxes of a graph stand: layers from top to bottom, in each an order with few crossings, columns near those
of the neighbours.

An edge that passes layers has a place in each of them; all edges of a step share it. Pure and deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.cli.graph.nodes import GraphNode, Nodes, dependents, layers

SWEEPS = 6
GAP = 3  # columns between two boxes
FRAME = 4  # a border and a space on each side of a label
LINE_WIDTH = 3  # what an edge takes that passes a layer: it may shift a little in it


class Item:
    """A box with the labels of one step, or of several alike, or a line that passes a layer (no labels). `x` is its
    first column; `port` is where edges leave below, found when those from above are."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.width = max(map(len, labels)) + FRAME if labels else LINE_WIDTH
        if len(self.labels) > 1:
            self.width = max(self.width, len(self.title) + FRAME + 2)
        self.above: list[Item] = []
        self.below: list[Item] = []
        self.x = self.port = 0

    @property
    def title(self) -> str:
        """What stands in the border of a box of several steps."""
        return f"{len(self.labels)} steps"

    @property
    def center(self) -> int:
        return self.x + self.width // 2

    @property
    def columns(self) -> range:
        """Those in which an edge may come in."""
        border = 1 if self.labels else 0
        return range(self.x + border, self.x + self.width - border)

    @property
    def height(self) -> int:
        return len(self.labels) + 2 if self.labels else 1


Layers = list[list[Item]]


def arranged(nodes: Nodes, *, together: bool) -> Layers:
    """The items of each layer from left to right, with their columns. `together`: steps that depend on the same ones,
    and on which the same ones depend, share a box."""
    found = _items(nodes, together)
    _sort(found)
    _place(found)
    return found


def boxes_needed(nodes: Nodes, *, together: bool) -> int:
    """How many boxes `arranged` makes of them."""
    after = dependents(nodes)
    return sum(len(_groups(layer, after, together)) for layer in layers(nodes))


def width(arrangement: Layers) -> int:
    """How many columns it takes."""
    return max(layer[-1].x + layer[-1].width for layer in arrangement)


def _items(nodes: Nodes, together: bool) -> Layers:
    after = dependents(nodes)
    found: Layers = []
    item_of: dict[str, Item] = {}
    depth: dict[Item, int] = {}
    for number, layer in enumerate(layers(nodes)):
        found.append([])
        for group in _groups(layer, after, together):
            item = Item([node.label for node in group])
            found[number].append(item)
            depth[item] = number
            item_of.update((node.id, item) for node in group)
    for item, targets in _edges(nodes, item_of).items():
        _link(item, targets, depth, found)
    return found


def _groups(layer: Sequence[GraphNode], after: Mapping[str, tuple[str, ...]], together: bool) -> list[list[GraphNode]]:
    groups: dict[object, list[GraphNode]] = {}
    for node in layer:
        key = (frozenset(node.depends_on), frozenset(after[node.id])) if together else node.id
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _edges(nodes: Nodes, item_of: dict[str, Item]) -> dict[Item, dict[Item, None]]:
    found: dict[Item, dict[Item, None]] = {}
    for node in nodes:
        for before in node.depends_on:
            found.setdefault(item_of[before], {})[item_of[node.id]] = None
    return found


def _link(item: Item, targets: dict[Item, None], depth: dict[Item, int], found: Layers) -> None:
    """Lead an item's edges to its targets, through one line in each layer between."""
    start, last = depth[item], max(depth[target] for target in targets)
    here = item
    for number in range(start + 1, last + 1):
        for target in targets:
            if depth[target] == number:
                _connect(here, target)
        if number < last:
            line = Item(())
            found[number].append(line)
            _connect(here, line)
            here = line


def _connect(upper: Item, lower: Item) -> None:
    upper.below.append(lower)
    lower.above.append(upper)


def _sort(found: Layers) -> None:
    """Order each layer by where its neighbours stand, downwards and upwards in turn."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in found[1:] if down else found[-2::-1]:
            places = {id(other): at for at, other in enumerate(_neighbours_layer(found, layer, down))}
            at = {id(item): _mean([places[id(o)] for o in _of(item, down)], here) for here, item in enumerate(layer)}
            layer.sort(key=lambda item: at[id(item)])


def _neighbours_layer(found: Layers, layer: list[Item], down: bool) -> list[Item]:
    number = next(number for number, one in enumerate(found) if one is layer)
    return found[number - 1 if down else number + 1]


def _of(item: Item, down: bool) -> list[Item]:
    return item.above if down else item.below


def _mean(places: Sequence[int], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _place(found: Layers) -> None:
    for layer in found:
        _spread(layer, [0] * len(layer))
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in found if down else found[::-1]:
            wanted = [_wanted(item, down) for item in layer]
            _spread(layer, wanted)
    left = min(item.x for layer in found for item in layer)
    for item in _all(found):
        item.x -= left


def _wanted(item: Item, down: bool) -> int:
    """The first column that would put the item under (over) the middle of its neighbours."""
    neighbours = _of(item, down)
    if not neighbours:
        return item.x
    centers = sorted(other.center for other in neighbours)
    return (centers[0] + centers[-1]) // 2 - item.width // 2


def _spread(layer: list[Item], wanted: Sequence[int]) -> None:
    """Give each item its wanted column as far as none overlap: between what pushing to the right and to the left
    give."""
    right, left = list(wanted), list(wanted)
    for at in range(1, len(layer)):
        right[at] = max(wanted[at], right[at - 1] + layer[at - 1].width + GAP)
    for at in range(len(layer) - 2, -1, -1):
        left[at] = min(wanted[at], left[at + 1] - layer[at].width - GAP)
    for item, one, other in zip(layer, right, left, strict=True):
        item.x = (one + other) // 2


def _all(found: Layers) -> Iterator[Item]:
    for layer in found:
        yield from layer
