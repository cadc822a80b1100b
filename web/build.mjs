// Bundles the page into src/gptree/studio/static. The bundle records a hash of its sources: a test compares the two.
import { createHash } from "node:crypto";
import { copyFileSync, readFileSync, readdirSync } from "node:fs";
import { build } from "esbuild";

const out = "../src/gptree/studio/static";
const sources = ["index.html", "style.css", "package.json", ...readdirSync("src").map((name) => `src/${name}`)].sort();
const hash = createHash("sha256");
for (const name of sources) hash.update(name).update("\0").update(readFileSync(name)).update("\0");

await build({
  entryPoints: { studio: "src/main.ts", style: "style.css" },
  outdir: out,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "inline",
  banner: { js: `/* gptree studio, built by make web from web/. sources ${hash.digest("hex")} */` },
});
copyFileSync("index.html", `${out}/index.html`);
