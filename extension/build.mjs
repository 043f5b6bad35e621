// Bundles the extension into one file for VS Code's extension host, which provides the `vscode` module.
// With --tests, bundles the tests of test/host instead; with --page, the usage page.
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const minify = process.argv.includes("--minify");
const tests = process.argv.includes("--tests");
const page = process.argv.indexOf("--page");

if (page >= 0) await buildPage(process.argv[page + 1]);
else {
  await build({
    entryPoints: tests ? { "host-tests": "test/host/index.ts" } : { extension: "src/extension.ts" },
    outdir: "dist",
    outExtension: { ".js": ".cjs" },
    bundle: true,
    external: ["vscode"],
    format: "cjs",
    platform: "node",
    target: "node20",
    minify,
    sourcemap: minify ? false : "linked",
    logLevel: "warning",
  });
}

/**
 * Writes the usage page as one HTML file that loads nothing. Its policy allows exactly the script and the style in
 * it, by their hashes, so that it works the same in a browser and in a webview.
 */
async function buildPage(file) {
  const { outputFiles } = await build({
    entryPoints: ["page/main.ts", "page/page.css"],
    outdir: "page",
    bundle: true,
    format: "iife",
    target: ["chrome123", "firefox120", "safari17.5"],
    minify: true,
    legalComments: "none",
    write: false,
    logLevel: "warning",
  });
  const text = (suffix) => outputFiles.find(({ path }) => path.endsWith(suffix)).text.trim();
  const script = text(".js");
  const style = text(".css");
  const hash = (source) => `'sha256-${createHash("sha256").update(source).digest("base64")}'`;
  const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'`;
  const license = (await readFile("node_modules/uplot/LICENSE", "utf8")).trim();
  const values = { POLICY: policy, STYLE: style, SCRIPT: script };
  const html = (await readFile("page/page.html", "utf8")).replace(/%([A-Z]+)%/g, (_, name) => values[name]);
  const notice = `<!--\nBuilt from extension/page by \`make page\`. It contains uPlot:\n\n${license}\n-->\n`;
  await writeFile(file, html.replace("<html", `${notice}<html`));
}
