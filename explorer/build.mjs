// SPDX-License-Identifier: Apache-2.0
// Builds the page into python/hloenv/explorer/static.
//
// The first line of explorer.js has a hash of the sources, so that a test can tell
// without node whether the files of `static` are built from them.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "python", "hloenv", "explorer", "static");
const own = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"];

function sources() {
  const found = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => relative(here, join(each.parentPath, each.name)).split(sep).join("/"));
  return [...own, ...found].sort();
}

function hashOfSources() {
  const hash = createHash("sha256");
  for (const name of sources()) {
    hash.update(`${name}\n`);
    hash.update(readFileSync(join(here, name)));
  }
  return hash.digest("hex");
}

const banner = `/* hloenv explorer; sources sha256 ${hashOfSources()} */`;
const result = await build({
  entryPoints: [join(here, "src", "main.ts")],
  outfile: "explorer.js",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "inline",
  banner: { js: banner },
  write: false,
});
const files = {
  "explorer.js": result.outputFiles[0].text,
  "explorer.css": readFileSync(join(here, "src", "style.css"), "utf8"),
  "index.html": readFileSync(join(here, "src", "index.html"), "utf8"),
  "icon.svg": readFileSync(join(here, "src", "icon.svg"), "utf8"),
};
let stale = 0;
for (const [name, text] of Object.entries(files)) {
  if (!process.argv.includes("--check")) {
    writeFileSync(join(target, name), text);
  } else if (readFileSync(join(target, name), "utf8") !== text) {
    console.error(`${name} is not what its sources give: run npm run build`);
    stale = 1;
  }
}
process.exit(stale);
