// Where the mesh is, as the server of this page has written it.
const meta = (name: string) => document.querySelector<HTMLMetaElement>(`meta[name="pushmesh-${name}"]`)?.content ?? "";

export const edge = meta("edge");
export const router = meta("router");

/** Names of the demos' topics and of their resource; namespaces.go makes what they need. */
export const CHAT = "play/chat";
export const PRICES = "play/prices";
export const SEAT = "play/seat";
