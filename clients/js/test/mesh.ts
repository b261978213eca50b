// A real mesh in one process of its own: pushmesh dev.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect as dial, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";

export interface Mesh {
  edge: string;
  stop(): Promise<void>;
}

/** Starts the mesh that PUSHMESH_BIN is, with what the programs of the README need in room. */
export async function startMesh(): Promise<Mesh> {
  const bin = process.env["PUSHMESH_BIN"];
  if (!bin) throw new Error("PUSHMESH_BIN is the pushmesh to test with: scripts/clients-js sets it");
  const data = mkdtempSync(`${tmpdir()}/pushmesh-js-`);
  const mesh = spawn(bin, ["dev", "--data", data, "--ports-from", "0"], { stdio: ["ignore", "pipe", "inherit"] });
  const exited = once(mesh, "exit");
  const addresses: string[] = [];
  for await (const line of createInterface({ input: mesh.stdout })) {
    const found = /^ {2}(?:subscribers|public API) \(.*?\)\s+(\S+)/.exec(line);
    if (found) addresses.push(found[1]!);
    if (line.startsWith("Ctrl-C")) break;
  }
  mesh.stdout.resume();
  const [edge, router] = addresses;
  if (!edge || !router) throw new Error("pushmesh dev did not say where it listens");
  writeFileSync(`${data}/claims.json`, '{"clients": true}');
  execFileSync(bin, ["namespace", "set", "room", "--client-publish", "--client-presence", "members", "--claims", `${data}/claims.json`, "--router", router]);
  return {
    edge,
    stop: async () => {
      mesh.kill("SIGTERM");
      await exited;
      rmSync(data, { recursive: true, force: true });
    },
  };
}

/** A wire to an address, which can be cut; or frozen: those who are connected hear nothing more, not even that. */
export async function startWire(to: string): Promise<{ address: string; cut(): void; freeze(): void; stop(): void }> {
  const [host, port] = to.split(":");
  const open = new Set<Socket>();
  const server = createServer((near) => {
    const far = dial(Number(port), host);
    for (const [one, other] of [[near, far], [far, near]] as const) {
      open.add(one);
      one.on("error", () => undefined);
      one.on("close", () => {
        open.delete(one);
        other.destroy();
      });
    }
    near.pipe(far);
    far.pipe(near);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const cut = () => open.forEach((s) => s.destroy());
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    freeze: () => open.forEach((s) => s.unpipe().pause()),
    stop: () => {
      cut();
      server.close();
    },
  };
}
