"""Budgets that refill with time: escalations into a model, retries of a process."""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """At most ``burst`` tokens, refilled at ``rate`` per second; ``rate`` ``None`` is unlimited."""

    rate: float | None
    burst: float
    tokens: float
    updated: float

    @classmethod
    def full(cls, rate: float | None, burst: float, now: float) -> "TokenBucket":
        """A bucket that starts full."""
        return cls(rate, burst, burst, now)

    def resize(self, rate: float | None, burst: float, now: float) -> None:
        """Change the size; what was used stays used."""
        self._refill(now)
        self.rate, self.burst = rate, burst
        self.tokens = min(self.tokens, burst)

    def take(self, now: float) -> bool:
        """Take one token; False when there is none."""
        if self.rate is None:
            return True
        self._refill(now)
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def _refill(self, now: float) -> None:
        if self.rate is not None:
            elapsed = max(0.0, now - self.updated)
            self.tokens = min(self.burst, self.tokens + elapsed * self.rate)
        self.updated = now


@dataclass(slots=True)
class RetryBudget:
    """Each first attempt earns ``ratio`` of a retry, up to ``burst``: a storm cannot multiply."""

    ratio: float = 0.1
    burst: float = 10.0
    tokens: float = 10.0

    def earn(self) -> None:
        """Count one first attempt."""
        self.tokens = min(self.burst, self.tokens + self.ratio)

    def take(self) -> bool:
        """Spend one retry; False when none is left."""
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True
