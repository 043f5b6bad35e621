// Bundles the extension into one file for VS Code's extension host, which provides the `vscode` module.
// With --tests, bundles the tests of test/host instead.
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
