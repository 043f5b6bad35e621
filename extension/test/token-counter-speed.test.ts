// Measures the token counts of one agent turn, including the sidecar. The call pattern was recorded in VS Code.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Sidecar } from "../src/sidecar.ts";
import { TokenCounter } from "../src/token-counter.ts";

const MAX_REQUESTS = 60;
// Ten times what an idle machine needs: only a different order of magnitude fails.
const COLD_MS = 600;
const WARM_MS = 100;

interface Recording {
  readonly first: number;
  readonly lengths: number[];
  readonly foreseen: number[];
  readonly calls: number[];
}

const file = join(import.meta.dirname, "../../tests/recordings/counts/agent-turn.json");
const recording = JSON.parse(readFileSync(file, "utf8")) as Recording;

/** Returns different texts of the recorded lengths. */
const makeTexts = (salt: string) =>
  recording.lengths.map((length, index) => `${salt}${index} counts the tokens of a tool's schema `.repeat(length / 20 + 1).slice(0, length || 1));

test("the texts of an agent turn are counted quickly, and faster from the cache", async (t) => {
  const silent = () => undefined;
  const sidecar = new Sidecar({
    findCommands: async () => [
      { source: "the test", command: process.env["TOLLBRIDGE_PYTHON"] ?? "python3", args: ["-m", "tollbridge.sidecar"] },
    ],
    initializeParams: () => ({ client: { name: "test", version: "1" }, settings: { allowHttp: false, timeouts: {} } }),
    log: { info: silent, warn: silent, error: silent },
  });
  t.after(() => sidecar.dispose());
  let requests = 0;
  const requestCounts = async (model: string, items: unknown[]) => {
    requests += 1;
    return (await sidecar.request<{ counts: number[] }>("count", { model, items })).counts;
  };
  // Start the engine and load its tokenizer, without filling the cache.
  await requestCounts("openai/gpt-5", ["warm"]);
  const calls = recording.calls.slice(0, recording.first);
  const never = Number.POSITIVE_INFINITY;
  const best = { cold: never, warm: never, afterTurn: never, afterRevision: never, requests: 0 };
  for (const salt of ["a", "b", "c", "d", "e"]) {
    const texts = makeTexts(salt);
    const counter = new TokenCounter(requestCounts, () => recording.foreseen.map((index) => texts[index] ?? ""));
    // One count after the other, as the agent does: the worst case.
    const pass = async () => {
      const started = performance.now();
      for (const index of calls) await counter.count("openai/gpt-5", texts[index] ?? "");
      return performance.now() - started;
    };
    requests = 0;
    best.cold = Math.min(best.cold, await pass());
    best.requests = requests;
    requests = 0;
    best.warm = Math.min(best.warm, await pass());
    counter.invalidate(0); // the same revision: cached texts stay valid
    best.afterTurn = Math.min(best.afterTurn, await pass());
    assert.equal(requests, 0);
    counter.invalidate(1); // a new revision: all texts are counted again
    best.afterRevision = Math.min(best.afterRevision, await pass());
    assert.ok(requests > 0);
  }
  t.diagnostic(`${calls.length} counts: ${best.cold.toFixed(1)} ms cold (${best.requests} requests), ${best.warm.toFixed(1)} ms warm, ${best.afterTurn.toFixed(1)} ms after a turn, ${best.afterRevision.toFixed(1)} ms after a new revision`);
  assert.ok(best.requests <= MAX_REQUESTS, `${best.requests} requests`);
  for (const cold of [best.cold, best.afterRevision]) assert.ok(cold <= COLD_MS, `${cold} ms without the cache`);
  for (const warm of [best.warm, best.afterTurn]) assert.ok(warm <= WARM_MS, `${warm} ms from the cache`);
});
