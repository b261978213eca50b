# One seat: whoever holds it works, the others wait in line.
import asyncio

from pushmesh import Client


def waits(position: int) -> None:
    print("number", position, "in the line")


async def main() -> None:
    mesh = Client("127.0.0.1:7400", client_id="monty")
    async with mesh as client:
        # It waits for its turn, and renews the hold from
        # then on.
        seat = await client.acquire(
            "play/seat", ttl=10, on_position=waits
        )
        async with seat:
            # What checks the token refuses a holder from
            # before.
            print("has the seat, with token", seat.token)
            await asyncio.sleep(2)  # the work
        print("gave it up")


asyncio.run(main())
