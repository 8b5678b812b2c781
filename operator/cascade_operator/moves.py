"""Which replicas may leave so that others can grow: the donor search of a hand-over, pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .observation import SetView


@dataclass(frozen=True)
class Board:
    """Live sets, what the plan wants of each, and per model the Ready replicas and their floor.

    ``floors``: model -> Ready replicas that must remain; a model without an entry has none.
    ``changing``: models that wait for replicas themselves, in a set of another shape.
    """

    sets: tuple[SetView, ...]
    wanted: Mapping[str, int]
    floors: Mapping[str, int]
    ready: Mapping[str, int]
    changing: frozenset[str]

    def surplus(self, view: SetView) -> int:
        return max(0, view.replicas - self.wanted.get(view.name, 0))


class _Search:
    """Takes the highest ordinals first and never goes below a floor of Ready replicas."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.ready = dict(board.ready)
        self.leaving: dict[str, int] = {}
        self.gpus = 0

    def take(
        self, view: SetView, count: int, enough: int, floors: Mapping[str, int], dead: bool = False
    ) -> None:
        """Takes up to ``count`` replicas of a set, until ``enough`` GPUs are gathered in all."""
        standing = {p.ordinal for p in view.ready_pods()}
        while count > self.leaving.get(view.name, 0) and self.gpus < enough:
            ordinal = view.replicas - 1 - self.leaving.get(view.name, 0)
            is_ready = ordinal in standing
            if is_ready and (dead or self.ready[view.model] - 1 < floors.get(view.model, 0)):
                return
            self.ready[view.model] -= is_ready
            self.leaving[view.name] = self.leaving.get(view.name, 0) + 1
            self.gpus += view.gpus_per_pod


def dead_surplus(board: Board, enough: int) -> dict[str, int]:
    """Surplus replicas, highest ordinals, that are not Ready; at most what is needed."""
    search = _Search(board)
    for view in _by_name(board.sets):
        search.take(view, board.surplus(view), enough, {}, dead=True)
    return search.leaving


def donors(board: Board, least: int, enough: int) -> dict[str, int] | None:
    """Surplus replicas worth ``enough`` GPUs, else at least ``least``; ``None``: not even those.

    Models that only shrink give first. A model that changes its shape gives half of its Ready
    replicas at a time, and goes down to its floor only when less would not free one replica.
    """
    giving = [v for v in _by_name(board.sets) if board.surplus(v)]
    giving.sort(key=lambda view: view.model in board.changing)
    halves = {
        model: max(board.floors.get(model, 0), count - max(1, count // 2))
        if model in board.changing
        else board.floors.get(model, 0)
        for model, count in board.ready.items()
    }
    for floors, goal in ((halves, enough), (board.floors, least)):
        search = _Search(board)
        for view in giving:
            search.take(view, board.surplus(view), goal, floors)
        if search.gpus >= least and search.leaving:
            return search.leaving
    return None


def borrowed(board: Board, least: int, receiver: str) -> dict[str, int] | None:
    """Surplus replicas and, for what is still missing, replicas of other models that the plan
    keeps: they come back once the receiver has changed its shape. ``None``: not possible."""
    search = _Search(board)
    for view in _by_name(board.sets):
        search.take(view, board.surplus(view), least, board.floors)
    lenders = [v for v in _by_name(board.sets) if v.model != receiver]
    lenders.sort(key=lambda view: -board.ready[view.model])
    for view in lenders:
        search.take(view, view.replicas, least, board.floors)
    return search.leaving if search.gpus >= least and search.leaving else None


def _by_name(sets: Iterable[SetView]) -> list[SetView]:
    return sorted(sets, key=lambda view: view.name)
