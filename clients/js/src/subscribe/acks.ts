// ACKs are gathered and said in few frames.
import { frame } from "../wire/frames.js";
import { Ack, FrameType, type Ack_Entry } from "../wire/schema.js";

/** How many ACKs of a run that can't be said as "all up to" are gathered before they are sent at once. */
const MOST_SINGLES = 512;

/** How many entries go into a frame: with the longest topics they have less than 64 KiB. */
const MOST_ENTRIES = 200;

/** The ACKs of one topic that name the same subscription (0: the plain ones). */
export class AckRun {
  epoch = 0;
  /** All up to it are ACKed; 0: nothing. */
  through = 0;
  singles: number[] = [];

  constructor(
    readonly topic: string,
    public sub: number,
  ) {}

  get waits(): boolean {
    return this.through > 0 || this.singles.length > 0;
  }

  get full(): boolean {
    return this.singles.length >= MOST_SINGLES;
  }

  /** What to say. */
  *entries(): Generator<Ack_Entry> {
    const { topic, epoch, sub } = this;
    if (this.through > 0) yield { topic, epoch, sub, seq: this.through, through: true };
    for (const seq of this.singles) yield { topic, epoch, sub, seq, through: false };
  }
}

/** The ACKs of a connection that wait to be sent. */
export class Acks {
  private readonly runs = new Set<AckRun>();

  get empty(): boolean {
    return this.runs.size === 0;
  }

  /** Has seq ACKed; through: everything before it was dealt with, too. Returns whether that is news. */
  add(run: AckRun, seq: number, through: boolean): boolean {
    if (seq <= run.through) return false;
    if (through) {
      run.through = seq;
      run.singles = [];
    } else {
      run.singles.push(seq);
    }
    this.runs.add(run);
    return true;
  }

  /** The frames that say what waits. */
  take(): Uint8Array[] {
    const entries = [...this.runs].flatMap((run) => [...run.entries()]);
    this.clear();
    const frames: Uint8Array[] = [];
    for (let i = 0; i < entries.length; i += MOST_ENTRIES) frames.push(frame(FrameType.ACK, Ack, { entries: entries.slice(i, i + MOST_ENTRIES) }));
    return frames;
  }

  /** Forgets what waits: a new connection knows nothing of the old one's messages. */
  clear(): void {
    for (const run of this.runs) {
      run.singles = [];
      run.through = 0;
    }
    this.runs.clear();
  }
}
