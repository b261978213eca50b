/**
 * One connection for all tabs: a SharedWorker has the client (serveTabs), and each tab uses it
 * (connectTab).
 *
 * @packageDocumentation
 */
export { serveTabs } from "./serve.js";
export { TabClient, connectTab, type TabMessage, type TabSubscription } from "./tab.js";
export type { TabEvents } from "./protocol.js";
