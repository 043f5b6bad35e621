// The extension as one file for the extension host, whose own `vscode` is; with --tests, its tests likewise.
import { build } from "esbuild";

const minify = process.argv.includes("--minify");
const tests = process.argv.includes("--tests");

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
