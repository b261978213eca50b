import asyncio

from pushmesh.backend import Backend


async def main() -> None:
    async with Backend("127.0.0.1:7401") as backend:
        for n, text in enumerate(["hello", "are you there?", "bye"]):
            done = await backend.publish("room/42/chat", text, dedupe_key=f"greeting-{n}")
            print("on disk as number", done.seq, flush=True)


asyncio.run(main())
