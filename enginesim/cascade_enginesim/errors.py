"""Errors of the simulated engine, by what the caller does next."""


class SettingsError(ValueError):
    """A launch that cannot start: the text names the flag or variable and what it may be."""


class RequestError(Exception):
    """A request that is answered with this status and message in SGLang's error shape."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
