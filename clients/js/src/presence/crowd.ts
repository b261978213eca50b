import type { Presence } from "../wire/schema.js";

/** A user in a topic, however many connections it has there. */
export interface Member {
  /** Of its token; without one "client:" and its client id. */
  user: string;
  /** What it says of itself (setState), of its connections the newest. */
  state: Uint8Array;
}

/** What is different in a topic from what was told before. */
export interface PresenceChange {
  topic: string;
  /** joined is everybody, and what was told before holds no more. */
  all: boolean;
  joined: Member[];
  /** Those that say something else of themselves. */
  changed: Member[];
  /** Users that have gone. */
  left: string[];
  /** How many users there are. */
  count: number;
  /** Users are not named: there are too many, or the namespace does not show them. */
  countsOnly: boolean;
}

const same = (a: Uint8Array, b: Uint8Array) => a.length === b.length && a.every((v, i) => v === b[i]);

/** Who is in a topic, as edges have told. */
export class Crowd {
  known = false;
  count = 0;
  countsOnly = false;
  private states = new Map<string, Uint8Array>();

  constructor(private readonly topic: string) {}

  /** Those who are there, by name. */
  get members(): Member[] {
    return this.named([...this.states.keys()].sort());
  }

  private named(users: readonly string[]): Member[] {
    return users.map((user) => ({ user, state: this.states.get(user)! }));
  }

  /** Everything that is known, as a change. */
  whole(): PresenceChange {
    return this.change({ all: !this.countsOnly, joined: this.members });
  }

  private change(of: Partial<PresenceChange>): PresenceChange {
    return { topic: this.topic, all: false, joined: [], changed: [], left: [], count: this.count, countsOnly: this.countsOnly, ...of };
  }

  /** Takes what an edge tells, and returns what is different; undefined: nothing. */
  take(m: Presence): PresenceChange | undefined {
    const named = this.known && !this.countsOnly;
    const differs = !this.known || this.count !== m.count || this.countsOnly !== m.countsOnly;
    this.known = true;
    this.count = m.count;
    this.countsOnly = m.countsOnly;
    const was = this.states;
    if (m.countsOnly) {
      this.states = new Map();
      return differs ? this.change({}) : undefined;
    }
    this.states = new Map(m.snapshot || !named ? [] : was);
    const joined: string[] = [];
    const changed: string[] = [];
    const left: string[] = [];
    for (const { user, state } of m.members) {
      const before = was.get(user);
      this.states.set(user, state.slice());
      if (!before) joined.push(user);
      else if (!same(before, state)) changed.push(user);
    }
    for (const user of m.left) if (this.states.delete(user)) left.push(user);
    if (m.snapshot) for (const user of was.keys()) if (!this.states.has(user)) left.push(user);
    if (!named) return this.whole();
    if (!differs && joined.length + changed.length + left.length === 0) return undefined;
    return this.change({ joined: this.named(joined), changed: this.named(changed), left: left.sort() });
  }
}
