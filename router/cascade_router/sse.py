"""Server-sent events as bytes: cut at blank lines, never per read; frames pass untouched."""

import re

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_BLANK = re.compile(rb"(?:\r\n|\n|\r)(?:\r\n|\n|\r)")


class FrameTooLargeError(Exception):
    """A frame did not end within the limit."""


class FrameBuffer:
    """Cuts a byte stream into frames; each frame keeps its own blank line.

    A blank line is two line ends in a row, each LF, CRLF or CR. Bytes come out in the order they
    came in, so the frames joined with ``rest`` are exactly the bytes fed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Frames that ended with ``data``; raises ``FrameTooLargeError``."""
        kept = self._kept + data if self._kept else data
        frames: list[bytes] = []
        start = 0
        if b"\r" in kept:
            for match in _BLANK.finditer(kept):
                # A CR at the very end may be half of a CRLF: wait for the next byte.
                if match.end() == len(kept) and kept.endswith(b"\r"):
                    break
                frames.append(kept[start : match.end()])
                start = match.end()
        else:
            end = kept.find(b"\n\n")
            while end >= 0:
                frames.append(kept[start : end + 2])
                start = end + 2
                end = kept.find(b"\n\n", start)
        self._kept = kept[start:]
        if len(self._kept) > self._limit:
            raise FrameTooLargeError(f"an event exceeds {self._limit} bytes")
        return frames

    @property
    def rest(self) -> bytes:
        """Bytes after the last blank line: a frame whose end was not seen."""
        return self._kept


def data_of(frame: bytes) -> bytes | None:
    """The frame's data lines joined by LF, or ``None`` when it has none (a comment)."""
    lines: list[bytes] = []
    for line in frame.splitlines():
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines) if lines else None


def comment(text: str) -> bytes:
    """A comment frame; line ends in ``text`` become spaces."""
    return b": " + " ".join(text.splitlines()).encode() + b"\n\n"
