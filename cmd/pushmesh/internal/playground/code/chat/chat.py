# A chat: who is there, the last 20 messages, and all that
# follow.
import asyncio

from pushmesh import Client, Message, PresenceChange, Start


def present(change: PresenceChange) -> None:
    print(change.count, "here")


def show(m: Message) -> None:
    print(f"{m.sender}: {m.text}")


async def main() -> None:
    mesh = Client("127.0.0.1:7400", client_id="monty")
    async with mesh as client:
        await client.watch_presence("play/chat", present)
        # A message is ACKed when its handler returns; after a
        # break the rest comes, in order.
        await client.subscribe(
            "play/chat", show, ack=True, start=Start.last(20)
        )
        # It is answered once it is on disk.
        await client.publish("play/chat", "hello from Python")
        await client.wait_ended()


asyncio.run(main())
