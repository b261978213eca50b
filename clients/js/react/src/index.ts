/**
 * React hooks for pushmesh.
 *
 * @packageDocumentation
 */
export { useMessages, type MessagesOptions, type Messages } from "./messages.js";
export { usePresence, type PresenceOf } from "./presence.js";
