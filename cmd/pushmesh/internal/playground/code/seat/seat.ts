// One seat: whoever holds it works, the others wait in line.
import { acquire, connect } from "@pushmesh/client";

const client = connect({
  url: "ws://127.0.0.1:7400",
  clientId: "tess",
});

// It waits for its turn, and renews the hold from then on.
const seat = await acquire(client, "play/seat", {
  ttlMs: 10_000,
  onPosition: (n) => console.log(`number ${n} in the line`),
});

// What checks the token refuses a holder from before.
console.log(`has the seat, with token ${seat.token}`);
const work = new Promise((end) => setTimeout(end, 2000));
await Promise.race([work, seat.lost]);

if (seat.held) await seat.release();
console.log("gave it up");
await client.close();
