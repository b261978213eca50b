"""Time that goes on while the machine sleeps, where the system has such a clock."""

from __future__ import annotations

import time

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds. A hold that ends while a laptop is closed has ended when it is opened."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)
