import assert from "node:assert/strict";
import { test } from "node:test";
import { Cursor } from "../src/position/cursor.js";
import { filterFault, matches } from "../src/position/filter.js";
import { SeqSet } from "../src/position/set.js";
import { AckRun, Acks } from "../src/subscribe/acks.js";
import { decode } from "../src/wire/codec.js";
import { cut } from "../src/wire/frames.js";
import { Ack } from "../src/wire/schema.js";

test("a set of seqs is as a set of numbers", () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 200; round++) {
    const set = new SeqSet();
    const plain = new Set<number>();
    for (let i = 0; i < 60; i++) {
      const lo = 1 + random(40);
      const hi = lo + random(6) - 1;
      if (random(3) > 0) {
        set.add(lo, hi);
        for (let n = lo; n <= hi; n++) plain.add(n);
      } else {
        set.remove(lo, hi);
        for (let n = lo; n <= hi; n++) plain.delete(n);
      }
      for (let n = 0; n < 50; n++) assert.equal(set.has(n), plain.has(n));
      assert.equal(set.min, Math.min(...plain, Infinity) === Infinity ? 0 : Math.min(...plain));
      const lacking = Array.from({ length: 45 }, (_, n) => n + 1).filter((n) => !plain.has(n));
      assert.deepEqual(set.lacks(45), { count: lacking.length, first: lacking[0] ?? 46 });
    }
  }
});

test("a set is bounded: its lowest gap is filled", () => {
  const set = new SeqSet(3);
  for (const seq of [1, 3, 5, 7]) set.add(seq, seq);
  assert.ok(set.has(2));
  assert.ok(!set.has(4) && !set.has(6));
});

test("a position waits for what was refused", () => {
  const c = new Cursor(false);
  c.restart(9, 10);
  c.succeeded(11);
  c.failed(12);
  c.succeeded(13);
  assert.equal(c.position, 11);
  c.succeeded(12);
  assert.equal(c.position, 13);
  const given = c.failed(14);
  assert.equal(given, undefined);
  c.succeeded(14 + 65537 - 1);
  assert.deepEqual(c.failed(14 + 65537), { lo: 14, hi: 14 });
});

test("a new epoch voids what was had, and late word of an old one is passed over", () => {
  const c = new Cursor(false);
  assert.equal(c.passed({ epoch: 5, from: 0, to: 0, code: "EPOCH_CHANGED" }), false); // the first word
  c.succeeded(1);
  assert.equal(c.passed({ epoch: 4, from: 0, to: 0, code: "EPOCH_CHANGED" }), false);
  assert.equal(c.high, 1);
  assert.equal(c.passed({ epoch: 6, from: 0, to: 0, code: "EPOCH_CHANGED" }), true);
  assert.deepEqual([c.epoch, c.position, c.done.has(1)], [6, 0, false]);
  c.passed({ epoch: 6, from: 1, to: 4, code: "FILTERED" });
  assert.equal(c.position, 4);
});

test("filters match as the mesh's do", () => {
  for (const [filter, topic, want] of [
    ["a/b", "a/b", true], ["a/b", "a/b/c", false], ["a/+", "a/b", true], ["a/+", "a", false], ["a/+", "a/b/c", false], ["+/b", "a/b", true],
    ["a/#", "a", true], ["a/#", "a/b/c", true], ["#", "a/b", true], ["#", "$x/a", false], ["+/a", "$x/a", false], ["$x/#", "$x/a", true], ["a/+/c", "a/b/c", true],
  ] as const) {
    assert.equal(matches(filter, topic), want, `${filter} ${topic}`);
  }
  for (const bad of ["", "a//b", "/a", "a/", "a+/b", "a/#/b", "ü".repeat(128)]) assert.notEqual(filterFault(bad), "", bad);
  for (const good of ["a", "+/#", "ü".repeat(127)]) assert.equal(filterFault(good), "", good);
});

test("ACKs share frames", () => {
  const acks = new Acks();
  const runs = [new AckRun("a/b", 0), new AckRun("a/c", 3)];
  runs[0]!.epoch = 9;
  for (const seq of [1, 2, 3]) assert.ok(acks.add(runs[0]!, seq, true));
  assert.ok(!acks.add(runs[0]!, 2, true));
  for (const seq of [5, 7]) acks.add(runs[1]!, seq, false);
  const [bytes, more] = acks.take();
  assert.equal(more, undefined);
  const entries = [...cut(bytes!)].flatMap(([, body]) => decode(Ack, body).entries);
  assert.deepEqual(entries, [
    { topic: "a/b", seq: 3, through: true, sub: 0, epoch: 9 },
    { topic: "a/c", seq: 5, through: false, sub: 3, epoch: 0 },
    { topic: "a/c", seq: 7, through: false, sub: 3, epoch: 0 },
  ]);
  assert.ok(acks.empty && acks.take().length === 0);
  for (let seq = 1; seq <= 500; seq++) acks.add(runs[1]!, 2 * seq, false);
  assert.equal(acks.take().length, 3);
});
