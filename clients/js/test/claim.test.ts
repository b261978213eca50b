// Claims by the clock: when they ask again, and what they leave behind.
import assert from "node:assert/strict";
import type { Client } from "../src/client.js";
import type { Link } from "../src/connect/link.js";
import { MeshError, checkClaim, claim, watchClaim, type Claim } from "../src/index.js";
import { Hub } from "../src/hub.js";
import { complete } from "../src/options.js";
import { encode } from "../src/wire/codec.js";
import { Claim as ClaimFrame, Claim_Op, ClaimState, ClaimState_State as Is, FrameType } from "../src/wire/schema.js";
import { timed, type Machine } from "./machine.js";

/** A client without a socket, and the Claims that it has sent. */
class Bench {
  readonly asked: ClaimFrame[] = [];
  readonly client: Client;
  readonly hub: Hub;

  constructor(
    readonly machine: Machine,
    random = 0,
  ) {
    this.hub = new Hub(complete({ url: "ws://edge", maxBackoffMs: 60_000 }), machine.timers, () => random);
    this.client = { hub: this.hub } as Client;
    this.connect();
  }

  connect(): void {
    this.hub.connected({ send: (_: number, __: unknown, m: ClaimFrame) => void this.asked.push(m) } as unknown as Link);
  }

  /** The next Claim; it is expected to come after so many milliseconds, rounded up. */
  next(op: keyof typeof Claim_Op, after = 0): ClaimFrame {
    const took = this.machine.until(() => this.asked.length > 0, 100_000);
    const asked = this.asked.shift();
    assert.ok(asked, `no Claim came, where ${op} was to come`);
    assert.equal(asked.op, Claim_Op[op]);
    assert.ok(took >= after && took <= after + 1, `${op} came after ${took} ms, not ${after}`);
    return asked;
  }

  nothing(ms: number): void {
    this.machine.until(() => this.asked.length > 0, ms);
    assert.deepEqual(this.asked, []);
  }

  answer(asked: ClaimFrame, state: keyof typeof Is, of: Partial<ClaimState> = {}): void {
    this.hub.take(FrameType.CLAIM_STATE, encode(ClaimState, { id: asked.id, resource: asked.resource, state: Is[state], ...of }));
  }

  refuse(asked: ClaimFrame, retryAfterMs = 0): void {
    this.hub.refused(new MeshError("OVERLOADED", "", retryAfterMs), asked.id);
  }

  /** A resource that is held. */
  async held(resource: string, expiresInMs: number): Promise<Claim> {
    const made = claim(this.client, resource);
    this.answer(this.next("ACQUIRE"), "GRANTED", { token: 7n, expiresInMs });
    return made;
  }
}

for (const [random, wants] of [[0, [50, 100, 200, 400, 800]], [1, [100, 200, 400, 800, 1600]]] as const) {
  timed(`what is refused for now is asked later each time: ${wants[0]} ms, …`, async (machine) => {
    const b = new Bench(machine, random);
    const made = claim(b.client, "seat");
    let asked = b.next("ACQUIRE");
    for (const want of wants) {
      b.refuse(asked);
      asked = b.next("ACQUIRE", want);
    }
    b.refuse(asked, 4000); // what the mesh asks for is a lower bound
    asked = b.next("ACQUIRE", random === 0 ? 4000 : 5000);
    b.answer(asked, "QUEUED", { position: 1 });
    assert.equal((await made).position, 1);

    const watch = watchClaim(b.client, "seat", () => undefined);
    asked = b.next("WATCH");
    for (const want of wants) {
      b.refuse(asked);
      asked = b.next("WATCH", want);
    }
    b.answer(asked, "QUEUED", { position: 1 });
    await watch.ready;

    // An answer begins anew.
    b.hub.broken();
    b.connect();
    for (const op of ["ACQUIRE", "WATCH"] as const) b.refuse(b.next(op));
    for (const op of ["ACQUIRE", "WATCH"] as const) b.answer(b.next(op, op === "ACQUIRE" ? wants[0] : 0), "QUEUED", { position: 1 });

    const checked = checkClaim(b.client, "other");
    asked = b.next("CHECK");
    for (const want of wants) {
      b.refuse(asked);
      // Promises lie between the pause and what is asked then.
      let took = 0;
      for (; b.asked.length === 0 && took < 5000; took++) {
        await turn();
        machine.until(() => false, 1);
      }
      asked = b.next("CHECK");
      assert.ok(took >= want && took <= want + 2, `CHECK came after ${took} ms, not ${want}`);
    }
    b.answer(asked, "FREE");
    assert.equal((await checked).state, "FREE");
  });
}

timed("however often a renewal is refused, it is tried again while the hold lasts", async (machine) => {
  const b = new Bench(machine, 1);
  const made = await b.held("seat", 9000);
  let asked = b.next("RENEW", 3000);
  for (let n = 0, left = 6000; left > 300; n++) {
    b.refuse(asked);
    const pause = Math.min(100 * 2 ** n, left / 3);
    const before = machine.time;
    asked = b.next("RENEW", Math.floor(pause));
    left -= machine.time - before;
    assert.ok(made.held);
  }
  b.answer(asked, "GRANTED", { token: 7n, expiresInMs: 9000 });
  asked = b.next("RENEW", 3000);
  b.refuse(asked, 3_600_000); // the mesh's word counts: it is lost in time
  machine.until(() => !made.held, 10_000);
  assert.equal((await made.lost)?.code, "UNAVAILABLE");
  assert.deepEqual(b.asked, []);
});

timed("a connection that broke is no refusal: the next one asks at once, and nothing is asked before", async (machine) => {
  const b = new Bench(machine, 1);
  const made = await b.held("seat", 60_000);
  const watch = watchClaim(b.client, "other", () => undefined);
  b.refuse(b.next("WATCH"), 5000);
  for (let n = 0; n < 5; n++) {
    b.hub.broken();
    b.nothing(1000);
    b.connect();
    b.next("RENEW");
    b.refuse(b.next("WATCH"), 30_000); // the pauses of the connections before are over
  }
  b.nothing(10_000);
  assert.ok(made.held);
  watch.stop();
});

timed("who no longer waits for a claim that is not sent yet claims nothing, on later connections either", async (machine) => {
  const b = new Bench(machine);
  const stop = new AbortController();
  const first = Array.from({ length: 16 }, (_, i) => claim(b.client, `seat/${i}`));
  const late = claim(b.client, "seat/late", { signal: stop.signal });
  late.catch(() => undefined);
  assert.equal(b.asked.splice(0).length, 16); // an edge takes no more at a time
  b.hub.broken();
  stop.abort(new Error("enough"));
  await assert.rejects(late, /enough/);
  b.connect();
  assert.deepEqual(b.asked.map((m) => m.resource).sort(), first.map((_, i) => `seat/${i}`).sort());
  for (const asked of b.asked.splice(0)) b.answer(asked, "QUEUED", { position: 1 });
  await Promise.all(first);
  b.nothing(1000);
});

timed("a watch outlives a claim beside it that is given up", async (machine) => {
  const b = new Bench(machine);
  const told: string[] = [];
  const watch = watchClaim(b.client, "seat", ({ state }) => told.push(state));
  b.answer(b.next("WATCH"), "FREE");
  await watch.ready;
  const stop = new AbortController();
  const made = claim(b.client, "seat", { signal: stop.signal });
  b.next("ACQUIRE");
  stop.abort(new Error("enough"));
  await assert.rejects(made, /enough/);
  b.answer(b.next("LEAVE"), "RELEASED"); // which ends the watch at the edge, too
  b.answer(b.next("WATCH"), "HELD_BY_OTHER");
  assert.deepEqual(told, ["FREE", "RELEASED", "HELD_BY_OTHER"]);
});

/** What is done once a promise is settled is done. */
const turn = () => new Promise((resolve) => setImmediate(resolve));
