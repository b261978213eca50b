import asyncio

import pushmesh


async def work(m: pushmesh.Message) -> None:
    if m.text == "too early" and m.attempt == 0:
        raise pushmesh.Nack(after=0.1)  # again in 0.1 s; any other exception: again at once
    print("done:", m.text, flush=True)  # returning ACKs it


async def main() -> None:
    async with pushmesh.Client("127.0.0.1:7400", client_id="worker-1") as client:
        await client.subscribe("room/42/jobs", work, ack=True, group="workers")
        print("ready", flush=True)
        await client.wait_ended()


asyncio.run(main())
