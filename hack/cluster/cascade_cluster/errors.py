"""Failures, told to the person who reads them: what happened, why, and what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot do what was asked; the text is complete without a traceback."""

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        self.what, self.why, self.remedy = what, why, remedy
        super().__init__("\n".join(part for part in (what, why, remedy) if part))


class CommandError(ClusterError):
    """A program that the harness called ended with an error."""


class WaitError(ClusterError):
    """A condition did not come true in time."""
