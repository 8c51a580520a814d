// Builds page.js and page.css of undertow/instrument/replay. Each begins with a digest of the sources it was built from,
// by which a test notices, without Node, that one of them has changed since.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "../../src/undertow/instrument/replay");

function digest() {
  const hash = createHash("sha256");
  const files = ["build.mjs", "package.json", ...readdirSync(join(here, "src")).sort().map((name) => `src/${name}`)];
  for (const name of files) hash.update(`${name}\n`).update(readFileSync(join(here, name)));
  return hash.digest("hex");
}

const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.js"],
  bundle: true,
  minify: true,
  write: false,
  format: "iife",
  target: "es2020",
  outdir: "out",
  entryNames: "page",
  legalComments: "none",
  charset: "ascii",
});
const banner = (sources) =>
  `/* Built from web/replay by "npm run build". Do not edit. Sources: ${sources}.\n` +
  " * With d3-zoom and its parts (Copyright Mike Bostock, ISC), dagre and graphlib (Copyright Chris Pettitt, MIT),\n" +
  " * uPlot (Copyright Leon Sorokin, MIT); their licences are in web/replay/LICENSES. */\n";
mkdirSync(target, { recursive: true });
for (const file of result.outputFiles) writeFileSync(join(target, file.path.split(/[\\/]/).pop()), banner(digest()) + file.text);
