// ESLint with the type-checked rules of typescript-eslint. Run with `npm run lint` or `make extension-lint`.
import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(
  globalIgnores(["dist/", "node_modules/", "bundled/"]),
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  js.configs.recommended,
  {
    files: ["**/*.ts"],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
  },
  {
    files: ["test/**/*.ts"],
    rules: {
      // node:test awaits the promises of its tests.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", name: "test", package: "node:test" }] },
      ],
      // Fakes of asynchronous functions are async without an await.
      "@typescript-eslint/require-await": "off",
    },
  },
  {
    files: ["*.mjs"],
    languageOptions: { globals: { process: "readonly" } },
  },
);
