import asyncio

import pushmesh


def tell(change: pushmesh.PresenceChange) -> None:
    for member in change.joined + change.changed:
        print("+", member.user, member.state.decode(), flush=True)
    for user in change.left:
        print("-", user, flush=True)


async def main() -> None:
    async with pushmesh.Client("127.0.0.1:7400", client_id="ann") as client:
        await client.subscribe("chat/lobby")  # who subscribes is there
        await client.set_state("chat/lobby", "typing")
        await client.watch_presence("chat/lobby", tell)
        await client.wait_ended()


asyncio.run(main())
