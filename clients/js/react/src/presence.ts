import { MeshError, watchPresence, type Client, type Member, type PresenceWatch } from "@pushmesh/client";
import { useEffect, useState } from "react";

export interface PresenceOf {
  /** By name; none where countsOnly. */
  members: readonly Member[];
  count: number;
  /** Users are not named: there are too many, or the namespace does not show them. */
  countsOnly: boolean;
  /** Something was told. */
  known: boolean;
  /** Why it ended. */
  error: MeshError | undefined;
}

const nothing: PresenceOf = { members: [], count: 0, countsOnly: false, known: false, error: undefined };

/** Who is in a topic, as long as the component is there. Without a client, or with an empty topic, it does nothing. */
export function usePresence(client: Client | undefined, topic: string): PresenceOf {
  // Of which client and topic it is: what was had before is not shown as theirs.
  const [state, setState] = useState({ of: undefined as object | undefined, topic: "", ...nothing });
  useEffect(() => {
    const from = { of: client, topic, ...nothing };
    setState(from);
    if (!client || !topic) return undefined;
    let gone = false;
    let watch: PresenceWatch;
    try {
      watch = watchPresence(client, topic, ({ count, countsOnly }) => {
        if (!gone) setState({ ...from, members: watch.members, count, countsOnly, known: true });
      });
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      setState({ ...from, error });
      return undefined;
    }
    void watch.ended.then((error) => !gone && setState((s) => ({ ...s, error })));
    return () => {
      gone = true;
      watch.stop();
    };
  }, [client, topic]);
  return client && topic && state.of === client && state.topic === topic ? state : nothing;
}
