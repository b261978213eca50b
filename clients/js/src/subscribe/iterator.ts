import type { Message } from "./message.js";
import type { Subscription } from "./subscription.js";

/** A loop over the messages of a subscription. */
export class MessageIterator implements AsyncIterableIterator<Message> {
  /** Messages that the loop has not had, each with what ends its handler. */
  private readonly ready: { message: Message; done: () => void }[] = [];
  private readonly readers: ((result: IteratorResult<Message> | Promise<never>) => void)[] = [];
  /** What the loop has now. */
  private current: { message: Message; done: () => void } | undefined;

  constructor(private readonly sub: Subscription) {
    void sub.ended.then(() => {
      for (const reader of this.readers.splice(0)) reader(this.end());
    });
  }

  /** The handler of the subscription. */
  readonly take = (message: Message): Promise<void> =>
    new Promise((done) => {
      this.ready.push({ message, done });
      this.feed();
    });

  next(): Promise<IteratorResult<Message>> {
    this.handled();
    if (this.sub.state === "ended") return Promise.resolve(this.end());
    return new Promise((resolve) => {
      this.readers.push(resolve);
      this.feed();
    });
  }

  private handled(): void {
    this.current?.message.settle(undefined);
    this.current?.done();
    this.current = undefined;
  }

  /** The loop is left: what it has comes again, unless it was ACKed. */
  async return(): Promise<IteratorResult<Message>> {
    if (this.current) this.ready.push(this.current);
    this.current = undefined;
    this.release();
    await this.sub.unsubscribe();
    return { done: true, value: undefined };
  }

  /** What the loop has not had is left to come again. */
  release(): void {
    for (const { message, done } of this.ready.splice(0)) {
      message.settle({ afterMs: 0, reason: "the loop was left", left: true });
      done();
    }
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  private feed(): void {
    if (this.sub.state === "ended" || this.ready.length === 0) return;
    const reader = this.readers.shift();
    if (!reader) return;
    this.current = this.ready.shift()!;
    reader({ done: false, value: this.current.message });
    if (this.readers.length > 0) this.handled(); // the next one was asked for already
  }

  private end(): IteratorResult<Message> | Promise<never> {
    const { error, aborted } = this.sub;
    if (aborted) return Promise.reject(aborted.why);
    return error ? Promise.reject(error) : { done: true, value: undefined };
  }
}
