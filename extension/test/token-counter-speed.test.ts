// Measures the token counts of one agent turn, including the sidecar. The call pattern was recorded in VS Code.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Sidecar } from "../src/sidecar.ts";
import { TokenCounter } from "../src/token-counter.ts";

const COLD_MS = 60;
const WARM_MS = 10;
const MAX_REQUESTS = 60;
// The limits are for a machine on which 2,000 iterations of the event loop take this long. On a slower or busier
// machine the limits are scaled by the measured factor, up to a maximum.
const IDLE_MS = 10;
const MAX_SLOWDOWN = 10;

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
  const best = { cold: never, warm: never, afterTurn: never, afterLesson: never, requests: 0 };
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
    best.warm = Math.min(best.warm, await pass());
    requests = 0;
    counter.invalidate(0); // the same lesson: cached texts stay valid
    best.afterTurn = Math.min(best.afterTurn, await pass());
    assert.equal(requests, 0);
    counter.invalidate(1); // a new lesson: all texts are counted again
    best.afterLesson = Math.min(best.afterLesson, await pass());
    assert.ok(requests > 0);
  }
  t.diagnostic(`${calls.length} counts: ${best.cold.toFixed(1)} ms cold (${best.requests} requests), ${best.warm.toFixed(1)} ms warm, ${best.afterTurn.toFixed(1)} ms after a turn, ${best.afterLesson.toFixed(1)} ms after a lesson`);
  assert.ok(best.requests <= MAX_REQUESTS, `${best.requests} requests`);
  const slowdown = await measureSlowdown();
  assert.ok(best.cold <= COLD_MS * slowdown, `cold ${best.cold}, the event loop is ${slowdown} times slower`);
  for (const warm of [best.warm, best.afterTurn]) assert.ok(warm <= WARM_MS * slowdown, `warm ${warm}, the event loop is ${slowdown} times slower`);
  assert.ok(best.afterLesson <= COLD_MS * slowdown, `after a lesson ${best.afterLesson}, the event loop is ${slowdown} times slower`);
});

/** Returns how many times slower the event loop is now than on an idle machine. */
async function measureSlowdown(): Promise<number> {
  const started = performance.now();
  for (let n = 0; n < 2_000; n++) await new Promise((resolve) => setImmediate(resolve));
  return Math.min(MAX_SLOWDOWN, Math.max(1, (performance.now() - started) / IDLE_MS));
}
