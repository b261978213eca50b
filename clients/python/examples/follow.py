import asyncio

import pushmesh


async def main() -> None:
    async with pushmesh.Client("127.0.0.1:7400", client_id="ann") as client:
        messages = await client.subscribe("room/42/#", ack=True)
        print("listening", flush=True)
        async for m in messages:  # going on to the next one ACKs the one before
            print(m.topic, m.seq, m.text, flush=True)


asyncio.run(main())
