/**
 * Where the next connection is tried: the edges in random order, all of them once in a round, those
 * of a detour before, once. A round does not begin with the edge that was tried last.
 */
export class Route {
  private order: string[] = [];
  private tried = 0;
  private detours: string[] = [];
  private last = "";

  constructor(
    private readonly urls: readonly string[],
    private readonly random: () => number = Math.random,
  ) {}

  next(): string {
    const detour = this.detours.shift();
    if (detour !== undefined) return (this.last = detour);
    if (this.tried >= this.order.length || this.tried === 0) {
      this.order = this.shuffled(this.urls);
      this.tried = 0;
      const i = this.order.indexOf(this.last);
      if (i >= 0) this.order.push(...this.order.splice(i, 1));
    }
    return (this.last = this.order[this.tried++]!);
  }

  /** Begins a new round: an edge that was good for a connection was not tried in vain. */
  found(): void {
    this.tried = 0;
  }

  /** Whether every edge has been tried since it said so last. */
  round(): boolean {
    if (this.tried < this.order.length || this.detours.length > 0) return false;
    this.tried = 0;
    return true;
  }

  /** Tries these first. */
  detour(urls: readonly string[]): void {
    this.detours = this.shuffled(urls);
  }

  private shuffled(list: readonly string[]): string[] {
    const out = [...list];
    for (let i = out.length - 1; i > 0; i--) {
      const j = Math.floor(this.random() * (i + 1));
      [out[i], out[j]] = [out[j]!, out[i]!];
    }
    return out;
  }
}

/** The URL of an edge that is named by host and port, like the URL of another one. */
export function siblingOf(url: string, address: string): string {
  const [, scheme, rest] = /^(wss?:\/\/)[^/?#]*(.*)$/.exec(url) ?? [];
  return scheme === undefined ? url : scheme + address + rest;
}
