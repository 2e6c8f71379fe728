// Builds ../built from src and styles: what a page loads first, and what it loads later. manifest.json says, for each
// source that pages begin with, which scripts it needs.
// Usage: node build.mjs [--watch]
import { build, context } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";

const OUT = new URL("../built/", import.meta.url).pathname;

const manifest = {
  name: "manifest",
  setup(built) {
    built.onEnd(async ({ metafile }) => {
      if (!metafile) return;
      const outputs = Object.entries(metafile.outputs).map(([path, output]) => [path.split("/").pop(), output]);
      const byName = new Map(outputs);
      const found = {};
      for (const [name, output] of outputs) {
        if (output.entryPoint?.startsWith("src/")) found[output.entryPoint] = [...needed(name, byName)];
      }
      const sorted = Object.fromEntries(Object.entries(found).sort());
      await writeFile(`${OUT}manifest.json`, `${JSON.stringify(sorted, null, 1)}\n`);
    });
  },
};

/** Whatever is loaded later needs what is loaded first: said of each, that is one script instead of one for each set of pages that share it. */
const first = {
  name: "first",
  setup(built) {
    const later = new Set();
    const main = JSON.stringify(new URL("src/main.tsx", import.meta.url).pathname);
    built.onResolve({ filter: /^\./ }, async ({ path, kind, resolveDir, pluginData }) => {
      if (kind !== "dynamic-import" || pluginData === later) return undefined;
      const found = await built.resolve(path, { kind, resolveDir, pluginData: later });
      later.add(found.path);
      return { path: found.path };
    });
    built.onLoad({ filter: /\.tsx$/ }, async ({ path }) =>
      later.has(path) ? { contents: `${await readFile(path, "utf8")}\nimport ${main};`, loader: "tsx" } : undefined,
    );
  },
};

/** The script and all that it imports at once. */
function needed(name, byName, found = new Set()) {
  found.add(name);
  for (const one of byName.get(name).imports) {
    const imported = one.path.split("/").pop();
    if (one.kind === "import-statement" && !found.has(imported)) needed(imported, byName, found);
  }
  return found;
}

const options = {
  absWorkingDir: new URL(".", import.meta.url).pathname,
  entryPoints: { app: "src/main.tsx", style: "styles/style.css" },
  outdir: OUT,
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: true,
  metafile: true,
  chunkNames: "[name]-[hash]",
  external: ["./inter.woff2"],
  legalComments: "none",
  logLevel: "warning",
  plugins: [first, manifest],
};

await mkdir(OUT, { recursive: true });
for (const name of await readdir(OUT)) if (/\.(js|css)$/.test(name)) await rm(OUT + name);
if (process.argv.includes("--watch")) await (await context(options)).watch();
else await build(options);
