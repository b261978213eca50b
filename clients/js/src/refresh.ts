import { MeshError } from "./error.js";
import type { Hub, Part, Request } from "./hub.js";
import { FrameType, RefreshToken, Refreshed } from "./wire/schema.js";

class Refreshing implements Request {
  id = 0;

  constructor(
    readonly resolve: (expiresAt: Date) => void,
    readonly refused: (why: MeshError) => void,
  ) {}
}

/** Hands new tokens to the connection that there is. */
export class Refresher implements Part {
  private readonly sent = new Set<Refreshing>();

  constructor(private readonly hub: Hub) {
    hub.answers(FrameType.REFRESHED, Refreshed, Refreshing, (r, m) => r.resolve(new Date(m.expiresAt / 1000)));
  }

  refresh(token: string): Promise<Date> {
    this.hub.check();
    const { link } = this.hub;
    if (!link) return Promise.reject(new MeshError("UNAVAILABLE", "there is no connection; the next one asks getToken"));
    return new Promise((resolve, reject) => {
      const over = () => {
        this.hub.requests.delete(r.id);
        this.sent.delete(r);
      };
      const refused = (why: MeshError) => {
        over();
        reject(why);
      };
      const r = new Refreshing((at) => {
        over();
        resolve(at);
      }, refused);
      r.id = this.hub.id(r);
      this.sent.add(r);
      const bad = link.send(FrameType.REFRESH_TOKEN, RefreshToken, { id: r.id, token });
      if (bad) refused(bad);
    });
  }

  connected(): void {}

  broken(): void {
    for (const r of [...this.sent]) r.refused(new MeshError("UNAVAILABLE", "the connection broke before the answer", 0, true));
  }

  ended(): void {
    this.broken();
  }
}
