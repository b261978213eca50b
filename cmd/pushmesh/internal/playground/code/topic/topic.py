# Any topics, many at a time: + is one level, # is all that
# follow.
import asyncio
from datetime import datetime, timezone

from pushmesh import Client, Gap, Message


# What can't be had any more is told, with the reason.
def missed(gap: Gap) -> None:
    print(gap.missed, "missed:", gap.code.name)


def show(m: Message) -> None:
    late = datetime.now(timezone.utc) - m.published_at
    print(m.topic, m.seq, late, m.text)


async def main() -> None:
    mesh = Client(
        "127.0.0.1:7400", client_id="pilar", on_gap=missed
    )
    async with mesh as client:
        await client.subscribe("play/news/#", show)
        # Clients publish where the policy of a namespace lets
        # them.
        done = await client.publish(
            "play/news/today", "hello from Python"
        )
        print("on disk as seq", done.seq)
        await client.wait_ended()


asyncio.run(main())
