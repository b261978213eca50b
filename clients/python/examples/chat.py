import asyncio
import sys
import uuid

import pushmesh


async def main(name: str) -> None:
    async def show(m: pushmesh.Message) -> None:
        print(f"{m.sender}: {m.text}", flush=True)

    async with pushmesh.Client("127.0.0.1:7400", client_id=name) as client:
        await client.subscribe("chat/lobby", show, ack=True, no_echo=True, start=pushmesh.Start.last(20))
        print("you are in", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            # With a key it is published once, whatever breaks meanwhile.
            await client.publish("chat/lobby", line.strip(), dedupe_key=uuid.uuid4().hex)


asyncio.run(main(sys.argv[1]))
