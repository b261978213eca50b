import asyncio

import pushmesh


async def main() -> None:
    async with pushmesh.Client("127.0.0.1:7400", client_id="ann") as client:
        async with await client.acquire("seat/1") as seat:
            print("seated, token", seat.token, flush=True)
            work = asyncio.create_task(asyncio.sleep(1))  # whatever it writes carries seat.token
            lost = asyncio.create_task(seat.lost())
            await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
            print("held to the end" if seat.held else f"lost: {seat.error}", flush=True)
            lost.cancel()


asyncio.run(main())
