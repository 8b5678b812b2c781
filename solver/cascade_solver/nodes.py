"""GPUs as nodes hold them, and whether a set of replicas fits (latency-model.md section 10)."""

import dataclasses
from collections.abc import Mapping

from .problem import Pool


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Free GPUs per node, and how many of them the plan may use altogether."""

    free: tuple[int, ...]
    gpus: int

    @property
    def largest(self) -> int:
        return max(self.free, default=0)

    def slots(self, size: int) -> int:
        """Replicas of ``size`` GPUs that the empty nodes hold."""
        return sum(node // size for node in self.free)

    def fits(self, replicas: Mapping[int, int]) -> bool:
        """Whether so many replicas of each size (GPUs of one node) fit at once.

        Exact when every size divides the larger ones, as tensor sizes do: then a replica takes
        the same number of smaller slots wherever it goes. Otherwise first fit, largest first.
        """
        if sum(size * count for size, count in replicas.items()) > self.gpus:
            return False
        left = sorted(self.free)
        for size in sorted(replicas, reverse=True):
            for _ in range(replicas[size]):
                for index, node in enumerate(left):
                    if node >= size:
                        left[index] -= size
                        break
                else:
                    return False
        return True

    def binding_sizes(self, sizes: set[int]) -> tuple[int, ...]:
        """Replica sizes for which fragmentation can bind before the count of GPUs does."""
        return tuple(s for s in sorted(sizes) if s > 1 and self.slots(s) * s < self.gpus)


def of(pool: Pool) -> Nodes:
    """The pool's nodes; without a reading, as few full nodes as hold the count."""
    if pool.free_per_node is not None:
        free = tuple(sorted(node for node in pool.free_per_node if node > 0))
        return Nodes(free, min(pool.gpus, sum(free)))
    full, rest = divmod(pool.gpus, pool.gpus_per_node)
    return Nodes((*((rest,) if rest else ()), *(pool.gpus_per_node,) * full), pool.gpus)
