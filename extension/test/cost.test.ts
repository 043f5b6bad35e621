// What the token counts of an agent's turn cost, sidecar included. The pattern was recorded in a real VS Code.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { TokenCounter } from "../src/counter.ts";
import { Sidecar } from "../src/sidecar.ts";

const COLD_MS = 60;
const WARM_MS = 10;
const MOST_TRIPS = 60;
// The limits are for where 2,000 turns of the event loop take this long. Where they take longer the limits grow alike,
// up to so many times: slower than that, nobody would wait for a count.
const ALONE_MS = 10;
const MOST_SLOW = 10;

interface Recording {
  readonly first: number;
  readonly lengths: number[];
  readonly foreseen: number[];
  readonly calls: number[];
}

const file = join(import.meta.dirname, "../../tests/recordings/counts/agent-turn.json");
const recorded = JSON.parse(readFileSync(file, "utf8")) as Recording;

/** Texts of the recorded lengths, no two alike. */
const textsOf = (salt: string) =>
  recorded.lengths.map((length, index) => `${salt}${index} counts the tokens of a tool's schema `.repeat(length / 20 + 1).slice(0, length || 1));

test("an agent's turn is counted quickly, and again in no time", async (t) => {
  const silent = () => undefined;
  const sidecar = new Sidecar({
    candidates: async () => [
      { what: "the test", command: process.env["TOLLBRIDGE_PYTHON"] ?? "python3", args: ["-m", "tollbridge.sidecar"] },
    ],
    greeting: () => ({ client: { name: "test", version: "1" }, settings: { allowHttp: false, timeouts: {} } }),
    log: { info: silent, warn: silent, error: silent },
  });
  t.after(() => sidecar.dispose());
  let trips = 0;
  const ask = async (model: string, items: unknown[]) => {
    trips += 1;
    return (await sidecar.request<{ counts: number[] }>("count", { model, items })).counts;
  };
  // The engine and its tokenizer are there; nothing has been counted.
  await ask("openai/gpt-5", ["warm"]);
  const calls = recorded.calls.slice(0, recorded.first);
  const never = Number.POSITIVE_INFINITY;
  const best = { cold: never, warm: never, next: never, learned: never, trips: 0 };
  for (const salt of ["a", "b", "c", "d", "e"]) {
    const texts = textsOf(salt);
    const counter = new TokenCounter(ask, () => recorded.foreseen.map((index) => texts[index] ?? ""));
    // One after the other, as the agent asks: the worst case.
    const pass = async () => {
      const started = performance.now();
      for (const index of calls) await counter.count("openai/gpt-5", texts[index] ?? "");
      return performance.now() - started;
    };
    trips = 0;
    best.cold = Math.min(best.cold, await pass());
    best.trips = trips;
    best.warm = Math.min(best.warm, await pass());
    trips = 0;
    counter.learned(0); // a turn that taught nothing of texts
    best.next = Math.min(best.next, await pass());
    assert.equal(trips, 0);
    counter.learned(1); // one that did: everything is counted again
    best.learned = Math.min(best.learned, await pass());
    assert.ok(trips > 0);
  }
  t.diagnostic(`${calls.length} counts: ${best.cold.toFixed(1)} ms cold (${best.trips} calls), ${best.warm.toFixed(1)} ms warm, ${best.next.toFixed(1)} ms after a turn, ${best.learned.toFixed(1)} ms after a lesson`);
  assert.ok(best.trips <= MOST_TRIPS, `${best.trips} calls`);
  const slow = await slowness();
  assert.ok(best.cold <= COLD_MS * slow, `cold ${best.cold}, the event loop ${slow} times slower`);
  for (const warm of [best.warm, best.next]) assert.ok(warm <= WARM_MS * slow, `warm ${warm}, the event loop ${slow} times slower`);
  assert.ok(best.learned <= COLD_MS * slow, `after a lesson ${best.learned}, the event loop ${slow} times slower`);
});

/** How much slower than alone the event loop turns just now. */
async function slowness(): Promise<number> {
  const started = performance.now();
  for (let n = 0; n < 2_000; n++) await new Promise((resolve) => setImmediate(resolve));
  return Math.min(MOST_SLOW, Math.max(1, (performance.now() - started) / ALONE_MS));
}
