"""A breaker per replica: opens on consecutive failures, probes, always heals by itself."""

FAILURES_TO_OPEN = 5
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
PROBE_SECONDS = 10.0
"""A probe that never came back stops blocking the next one after this time."""

CLOSED, HALF_OPEN, OPEN = 0, 1, 2


class Breaker:
    """Only transport errors, time-outs and 5xx are failures; 4xx are neither."""

    __slots__ = ("_failures", "_open_until", "_pause", "_probe_until")

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._open_until: float | None = None
        self._probe_until = 0.0

    def state(self, now: float) -> int:
        """``CLOSED``, ``HALF_OPEN`` or ``OPEN``."""
        if self._open_until is None:
            return CLOSED
        return OPEN if now < self._open_until else HALF_OPEN

    def admits(self, now: float) -> bool:
        """Whether a call may go out now; half open admits one probe at a time."""
        state = self.state(now)
        return state == CLOSED or (state == HALF_OPEN and now >= self._probe_until)

    def begin(self, now: float) -> None:
        """A call goes out: while half open it is the probe."""
        if self._open_until is not None:
            self._probe_until = now + PROBE_SECONDS

    def succeed(self) -> None:
        """The call worked: closed again."""
        self._failures = 0
        self._pause = FIRST_PAUSE_SECONDS
        self._open_until = None
        self._probe_until = 0.0

    def fail(self, now: float) -> None:
        """The call failed: open after ``FAILURES_TO_OPEN`` in a row, each time for longer."""
        self._failures += 1
        self._probe_until = 0.0
        if self._open_until is not None or self._failures >= FAILURES_TO_OPEN:
            self._open_until = now + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def release(self) -> None:
        """The call said nothing about health: a probe gives its place back."""
        self._probe_until = 0.0
