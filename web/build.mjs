// Builds the page into dist/, which the Go package web embeds. With --check it writes
// nothing and fails if dist/ is not what a build would write.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");

// The policy of the page forbids style elements and style attributes, which xterm makes. Its styles go into
// style sheets of the document instead (app/terminal-style.ts). The last change is to the contrast of text in reverse
// video, for which xterm compares the ground with itself. The build fails if another version of xterm differs.
const xterm = {
  name: "xterm",
  setup: ({ onLoad }) =>
    onLoad({ filter: /@xterm[\\/]xterm[\\/]lib[\\/]xterm\.mjs$/ }, ({ path }) => {
      let contents = readFileSync(path, "utf8");
      const replace = (from, to, times) => {
        const parts = contents.split(from);
        if (parts.length !== times + 1) throw new Error(`xterm has ${parts.length - 1} of ${from}, want ${times}`);
        contents = parts.join(to);
      };
      replace(/[\w.]+\.createElement\("style"\)/, "makeStyle()", 3);
      replace('t.setAttribute("style",`${t.getAttribute("style")||""}${e};`)', 't.style.cssText+=e+";"', 1);
      replace("p.foreground,x,tt,Qi)||fi&&", "fi?p.background:p.foreground,x,tt,Qi)||fi&&", 1);
      const from = JSON.stringify(join(here, "app/terminal-style.ts"));
      return { contents: `import { makeStyle } from ${from};${contents}`, loader: "js" };
    }),
};

const common = {
  absWorkingDir: here,
  bundle: true,
  write: false,
  minify: true,
  metafile: true,
  format: "esm",
  target: ["chrome109", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".svg": "file" },
  assetNames: "assets/[name]-[hash]",
  chunkNames: "assets/[name]-[hash]",
  entryNames: "assets/[name]-[hash]",
  outdir: "dist",
  publicPath: "/",
  legalComments: "none", // assets/licenses.txt has all licenses
  logLevel: "warning",
};

// The worker has its own build, because the page has to know its hashed name. The theme is a
// script and no module, so that it runs before anything is drawn.
const worker = await build({ ...common, entryPoints: ["app/highlight-worker.ts", "app/theme.ts"], format: "iife" });
const icons = new Map(
  readdirSync(join(here, "app/icons")).map((name) => {
    const content = readFileSync(join(here, "app/icons", name));
    const hash = createHash("sha256").update(content).digest("hex").slice(0, 8).toUpperCase();
    return [name, { path: `assets/${name.replace(".png", `-${hash}.png`)}`, content }];
  }),
);
const icon = (name) => `/${icons.get(name).path}`;
// The service worker keeps its name, because browsers look there for a newer one.
const service = await build({
  ...common,
  entryPoints: ["app/sw.ts"],
  entryNames: "[name]",
  format: "iife",
  define: {
    NOTIFICATION_ICON: JSON.stringify(icon("icon-192.png")),
    NOTIFICATION_BADGE: JSON.stringify(icon("badge-96.png")),
  },
});
const page = await build({
  ...common,
  entryPoints: ["app/main.tsx"],
  splitting: true,
  plugins: [xterm],
  define: { HIGHLIGHT_WORKER: JSON.stringify(outputs(worker).entry("app/highlight-worker.ts")) },
});

const files = new Map();
for (const result of [worker, service, page]) {
  for (const f of result.outputFiles) files.set(relative(dist, f.path).replaceAll("\\", "/"), Buffer.from(f.contents));
}
const built = outputs(page);
const html = readFileSync(join(here, "app/index.html"), "utf8")
  .replace("{{script}}", built.entry("app/main.tsx"))
  .replace("{{theme}}", outputs(worker).entry("app/theme.ts"))
  .replace("{{style}}", built.style("app/main.tsx"))
  .replaceAll("{{icon}}", built.asset("app/icon.svg"))
  .replace("{{touch}}", icon("touch-180.png"));
files.set("index.html", Buffer.from(html));
for (const { path, content } of icons.values()) files.set(path, content);
const manifest = readFileSync(join(here, "app/manifest.webmanifest"), "utf8")
  .replace("{{icon.svg}}", built.asset("app/icon.svg"))
  .replace(/{{(.*?)}}/g, (_, name) => icon(name));
files.set("manifest.webmanifest", Buffer.from(manifest));
files.set("assets/licenses.txt", Buffer.from(licenses([worker, page])));

if (process.argv.includes("--check")) {
  const stale = compare(files);
  if (stale.length > 0) {
    console.error(`web/dist is not current, run make web: ${stale.join(", ")}`);
    process.exit(1);
  }
} else {
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(join(dist, "assets"), { recursive: true });
  for (const [name, content] of files) {
    writeFileSync(join(dist, stored(name)), name === stored(name) ? content : gzipSync(content, { level: 9 }));
  }
}

// stored returns the name of a file in dist/. The program holds scripts and styles compressed, as browsers get them.
function stored(name) {
  return /\.(js|css)$/.test(name) ? `${name}.gz` : name;
}

// outputs finds the names of what a build wrote.
function outputs(result) {
  const all = Object.entries(result.metafile.outputs);
  const url = (found, what) => {
    if (!found) throw new Error(`the build has no ${what}`);
    return found.replace(/^dist/, "");
  };
  const of = (source) => all.find(([, o]) => o.entryPoint === source);
  return {
    entry: (source) => url(of(source)?.[0], source),
    style: (source) => url(of(source)?.[1].cssBundle, `style of ${source}`),
    asset: (source) => url(all.find(([name, o]) => !name.endsWith(".css") && o.inputs[source])?.[0], source),
  };
}

// licenses returns the licenses of all packages that are in the bundle.
function licenses(results) {
  const names = new Set();
  for (const r of results) {
    for (const input of Object.keys(r.metafile.inputs)) {
      const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input);
      if (found) names.add(found[1]);
    }
  }
  return [...names]
    .sort()
    .map((name) => {
      const folder = join(here, "node_modules", name);
      const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      const text = readdirSync(folder)
        .filter((f) => /^licen[cs]e/i.test(f))
        .sort();
      const body = text.map((f) => readFileSync(join(folder, f), "utf8").trim()).join("\n\n");
      return `${name} ${about.version} (${about.license})\n\n${body}\n`;
    })
    .join("\n" + "-".repeat(80) + "\n\n");
}

// compare returns the names of files that a build would add, change or remove. It compares the contents of compressed
// files, because the compressed bytes differ with the version of zlib.
function compare(files) {
  const present = existsSync(dist)
    ? readdirSync(dist, { recursive: true, withFileTypes: true })
        .filter((e) => e.isFile())
        .map((e) => relative(dist, join(e.parentPath ?? e.path, e.name)).replaceAll("\\", "/"))
    : [];
  const wanted = [...files.keys()].map(stored);
  const stale = present.filter((name) => !wanted.includes(name));
  for (const [name, content] of files) {
    const file = join(dist, stored(name));
    const held = existsSync(file) && readFileSync(file);
    if (!held || !(name === stored(name) ? held : gunzipSync(held)).equals(content)) stale.push(name);
  }
  return stale;
}
