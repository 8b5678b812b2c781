"""Errors of the request path, named by what the client is told; one place maps them to HTTP."""


class RouterError(Exception):
    """A request ends with ``status``; ``code`` and ``kind`` are the OpenAI error fields."""

    status = 500
    kind = "server_error"
    code = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class RequestError(RouterError):
    """The request itself is wrong: 400."""

    status = 400
    kind = "invalid_request_error"
    code = "invalid_request"


class NotFoundError(RouterError):
    """No such path: 404."""

    status = 404
    kind = "invalid_request_error"
    code = "not_found"


class MethodError(RouterError):
    """The path exists, the method does not: 405."""

    status = 405
    kind = "invalid_request_error"
    code = "method_not_allowed"


class ModelNotFoundError(RouterError):
    """No such model: 404 ``model_not_found``."""

    status = 404
    kind = "invalid_request_error"
    code = "model_not_found"


class BodyTooLargeError(RouterError):
    """The request body exceeds the limit: 413."""

    status = 413
    kind = "invalid_request_error"
    code = "body_too_large"


class OverloadedError(RouterError):
    """Shed because capacity is used up: 429."""

    status = 429
    kind = "rate_limit_error"
    code = "overloaded"


class UnavailableError(RouterError):
    """Nothing can serve now: starting, draining, no Ready replica, all breakers open: 503."""

    status = 503
    kind = "server_error"
    code = "unavailable"


class BadGatewayError(RouterError):
    """An engine broke the connection or the protocol: 502."""

    status = 502
    kind = "server_error"
    code = "engine_failed"


class AnswerTooLargeError(BadGatewayError):
    """An answer exceeds what one router process may keep: it cannot be collected."""

    code = "answer_too_large"


class GatewayTimeoutError(RouterError):
    """An engine did not answer in time: 504."""

    status = 504
    kind = "server_error"
    code = "engine_timeout"


class KubeError(Exception):
    """The API server refused or could not be reached; ``status`` 0 when it could not."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ClientGoneError(Exception):
    """The client closed its connection; nothing can be sent any more."""
