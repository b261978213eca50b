"""What goes wrong, by what the caller can do about it."""

from __future__ import annotations

from .codes import Code


class PushmeshError(Exception):
    """Base of everything that this package raises, but for what handlers raise."""


class ConfigError(PushmeshError, ValueError):
    """An argument that can't work. Nothing was connected or sent."""


class Refused(PushmeshError):
    """A refusal by the mesh, with its reason."""

    def __init__(self, code: Code, message: str = "", *, retry_after: float = 0.0, unknown: bool = False) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message
        # Seconds; above 0 says when trying again may help.
        self.retry_after = retry_after
        # The mesh may have done what was asked: the connection broke before the answer.
        self.unknown = unknown

    @property
    def retryable(self) -> bool:
        """Whether the same, tried again later, can succeed."""
        return self.code.retryable


class Closed(PushmeshError):
    """The client, or the subscription, has been closed."""

    def __init__(self, message: str = "closed") -> None:
        super().__init__(message)


class NoConnection(PushmeshError):
    """There is no connection, and why."""


class HeldByOther(PushmeshError):
    """The resource of a claim with no_wait is held, or waited for, by others."""


class Nack(Exception):
    """Raised by a handler to have a message again, after so many seconds and not before."""

    def __init__(self, reason: str = "", *, after: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after
