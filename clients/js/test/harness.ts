// An edge for each test of a file, and clients that are closed behind it.
import { afterEach, beforeEach } from "node:test";
import type { Client } from "../src/index.js";
import type { ConnectOptions } from "../src/options.js";
import { Edge, type Peer } from "./edge.js";

export interface Harness {
  edge: Edge;
  connect(options?: Partial<ConnectOptions>): Client;
  /** A client, and its connection as the edge has it. */
  joined(options?: Partial<ConnectOptions>): Promise<{ client: Client; peer: Peer }>;
}

export function harness(): Harness {
  let clients: Client[] = [];
  const h: Harness = {
    edge: undefined as unknown as Edge,
    connect(options) {
      const client = h.edge.connect(options);
      clients.push(client);
      return client;
    },
    async joined(options) {
      const client = h.connect(options);
      const peer = await h.edge.peers.next();
      await peer.welcome();
      return { client, peer };
    },
  };
  beforeEach(async () => {
    h.edge = await Edge.start();
  });
  afterEach(async () => {
    await Promise.all(clients.map((c) => c.close()));
    clients = [];
    h.edge.stop();
  });
  return h;
}
