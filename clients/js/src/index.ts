/**
 * Client of pushmesh, which delivers messages from backend services to very many connected clients.
 *
 * @packageDocumentation
 */
export { Client, connect } from "./client.js";
export { MeshError, type Code } from "./error.js";
export type { ConnectOptions, Connection, Events, Gap, State } from "./options.js";
export type { Payload, PublishOptions, Published } from "./publish.js";
export { Message } from "./subscribe/message.js";
export type { From, Handler, Position, SubscribeOptions } from "./subscribe/options.js";
export type { Standing } from "./subscribe/standing.js";
export type { Subscription, SubscriptionState } from "./subscribe/subscription.js";
export type { WebSocketConstructor, WebSocketLike } from "./connect/websocket.js";
export { acquire, claim, type Claim, type ClaimOptions, type ReleaseOptions } from "./claim/claim.js";
export { checkClaim, watchClaim, type ClaimInfo, type ClaimWatch } from "./claim/watch.js";
export { setState, watchPresence, type PresenceWatch } from "./presence/presence.js";
export type { Member, PresenceChange } from "./presence/crowd.js";
