# The best five prices of each second, for somebody who
# likes technology.
import asyncio

from pushmesh import Client

# What the rank policy of play/prices multiplies with the
# features of each message.
profile = {"tech": 1.0, "energy": 0.1}


async def main() -> None:
    mesh = Client("127.0.0.1:7400", profile=profile)
    async with mesh as client:
        prices = await client.subscribe(
            "play/prices", rank_top_k=5
        )
        async for m in prices:
            print(f"{m.score:.2f}", m.text)


asyncio.run(main())
