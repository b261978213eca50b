// Builds the page: node build.mjs FOLDER, with the esbuild that clients/js pins.
import { copyFileSync, mkdirSync, readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const client = join(here, "../../../../../clients/js");
const { build } = createRequire(join(client, "package.json"))("esbuild");
const out = process.argv[2];

/** The programs that the page shows: the files of ../code. */
const programs = {
  name: "programs",
  setup(build) {
    build.onResolve({ filter: /^programs$/ }, () => ({ path: "programs", namespace: "programs" }));
    build.onLoad({ filter: /.*/, namespace: "programs" }, () => {
      const all = {};
      const code = join(here, "../code");
      for (const demo of readdirSync(code)) {
        all[demo] = Object.fromEntries(readdirSync(join(code, demo)).map((file) => [file.split(".").at(-1), readFileSync(join(code, demo, file), "utf8")]));
      }
      return { contents: JSON.stringify(all), loader: "json" };
    });
  },
};

mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "main.ts" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  alias: { "@pushmesh/client": join(client, "src/index.ts") },
  plugins: [programs],
});
await build({ absWorkingDir: here, entryPoints: { app: "style.css" }, outdir: out, minify: true, target: "es2022", charset: "utf8" });
for (const file of ["index.html", "icon.svg"]) copyFileSync(join(here, file), join(out, file));
