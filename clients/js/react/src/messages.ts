import { MeshError, type Client, type Gap, type Message, type SubscribeOptions, type Subscription } from "@pushmesh/client";
import { useEffect, useRef, useState } from "react";

export interface MessagesOptions extends Omit<SubscribeOptions, "onGap" | "signal"> {
  /** How many messages are kept, the newest; 100. 0: none. */
  keep?: number;
  /** Called with each message before it is kept. What it throws has the message come again. */
  onMessage?: (message: Message) => unknown;
}

export interface Messages {
  /** In the order in which they came. */
  messages: readonly Message[];
  /** joining: the mesh has not promised yet; live: everything that is published comes. */
  status: "joining" | "live" | "ended";
  /** The last messages that will not come: what is shown may lack some. */
  gap: Gap | undefined;
  /** Why it ended. */
  error: MeshError | undefined;
}

const nothing: Messages = { messages: [], status: "joining", gap: undefined, error: undefined };

/**
 * The messages of a topic or filter, as long as the component is there. It subscribes anew when the
 * client, the filter or an option changes. Without a client, or with an empty filter, it does nothing.
 */
export function useMessages(client: Client | undefined, filter: string, options: MessagesOptions = {}): Messages {
  // Of which client, filter and options it is: what was had before is not shown as theirs.
  const [state, setState] = useState({ of: undefined as object | undefined, filter: "", key: "", ...nothing });
  const { keep = 100, onMessage, ...rest } = options;
  const latest = useRef({ keep, onMessage });
  useEffect(() => {
    latest.current = { keep, onMessage };
  });
  const key = JSON.stringify(rest);
  useEffect(() => {
    setState({ of: client, filter, key, ...nothing });
    if (!client || !filter) return undefined;
    let gone = false;
    const change = (f: (s: Messages) => Partial<Messages>) => {
      if (!gone) setState((s) => ({ ...s, ...f(s) }));
    };
    const take = async (m: Message) => {
      await latest.current.onMessage?.(m);
      change((s) => ({ messages: latest.current.keep > 0 ? [...s.messages, m].slice(-latest.current.keep) : [] }));
    };
    const ended = (error: MeshError | undefined) => change(() => ({ status: "ended", error }));
    let sub: Subscription;
    try {
      sub = client.subscribe(filter, take, { ...(JSON.parse(key) as SubscribeOptions), onGap: (gap) => change(() => ({ gap })) });
    } catch (e) {
      if (!(e instanceof MeshError)) throw e;
      ended(e);
      return undefined;
    }
    sub.ready.then(() => change(() => ({ status: "live" })), () => undefined);
    void sub.ended.then(() => ended(sub.error));
    return () => {
      gone = true;
      void sub.unsubscribe();
    };
  }, [client, filter, key]);
  return client && filter && state.of === client && state.filter === filter && state.key === key ? state : nothing;
}
