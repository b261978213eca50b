"""
The Python client of the pushmesh message mesh.

    import asyncio
    import pushmesh

    async def main():
        async with pushmesh.Client("127.0.0.1:7400", client_id="ann") as client:
            async for m in await client.subscribe("room/42/#", ack=True):
                print(m.topic, m.seq, m.text)

    asyncio.run(main())

Publishing as a backend, over gRPC, is in pushmesh.backend (pip install 'pushmesh[grpc]').
"""

from ._publishing import Published
from ._version import __version__
from .claim import Claim, ClaimInfo, ClaimState, ClaimWatch
from .client import Client
from .codes import Code
from .errors import Closed, ConfigError, HeldByOther, Nack, NoConnection, PushmeshError, Refused
from .events import Connection, Gap, Stats
from .message import Message
from .presence import Member, PresenceChange, PresenceWatch
from .subscription import Handler, Overflow, Position, Start, Subscription

__all__ = [
    "Claim", "ClaimInfo", "ClaimState", "ClaimWatch", "Client", "Closed", "Code", "ConfigError", "Connection", "Gap", "Handler",
    "HeldByOther", "Member", "Message", "Nack", "NoConnection", "Overflow", "Position", "PresenceChange", "PresenceWatch",
    "Published", "PushmeshError", "Refused", "Start", "Stats", "Subscription", "__version__",
]
