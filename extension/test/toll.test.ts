import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChatResult, ModelInfo } from "../src/protocol.ts";
import { bar, short, show, totalsTable, usagePage } from "../src/toll.ts";

const model = { id: "m", name: "Demo", contextWindow: 128_000, maxInputTokens: 64_000 } as ModelInfo;
const NONE = { models: [], accuracy: [] };
const result = (inputTokens: number, outputTokens: number, cachedTokens?: number): ChatResult => ({
  usage: { inputTokens, outputTokens, ...(cachedTokens === undefined ? {} : { cachedTokens }) },
  firstSeconds: 0.412,
  seconds: 3.2,
});

test("numbers are short and unknown is not zero", () => {
  const counts = [undefined, 0, 999, 1_000, 1_234, 99_949, 99_950, 128_000, 999_499, 999_500, 1_048_576];
  assert.deepEqual(counts.map(short), ["–", "0", "999", "1K", "1.2K", "99.9K", "100K", "128K", "999K", "1M", "1M"]);
});

test("the bar is empty only when nothing is used and full when all is", () => {
  assert.deepEqual([0, 0.001, 0.5, 1, 7].map(bar), ["▱▱▱▱▱▱▱▱", "▰▱▱▱▱▱▱▱", "▰▰▰▰▱▱▱▱", "▰▰▰▰▰▰▰▰", "▰▰▰▰▰▰▰▰"]);
});

test("the status bar shows the model, the context and the last answer's tokens", () => {
  const shown = show({ model, result: result(1_234, 56, 1_000) }, 0, NONE);
  assert.equal(shown.text, "$(milestone) Demo 1.3K/128K ▰▱▱▱▱▱▱▱ ↑1.2K ↓56 ⟲1K");
  assert.equal(shown.warning, false);
  assert.match(shown.tooltip, /1,290 of 128,000 \(1\.0 %\)/);
  assert.match(shown.tooltip, /0\.41 s to the first word/);
});

test("it spins while an answer comes in", () => {
  assert.match(show({ model, result: result(10, 1) }, 1, NONE).text, /^\$\(loading~spin\)/);
});

test("what is near the limit is the engine's to say", () => {
  assert.equal(show({ model, result: result(63_999, 100) }, 0, NONE).warning, false);
});

test("what the engine warned of is shown, and so is a prompt that was refused", () => {
  const warning = "The prompt uses about 60,000 of 64,000 tokens (94 %).";
  const near = show({ model, result: { ...result(10, 1), warning } }, 0, NONE);
  assert.equal(near.warning, true);
  assert.ok(near.tooltip.includes(warning));
  const refused = show({ model, result: { warning: "The prompt is too long." } }, 0, NONE);
  assert.deepEqual([refused.text, refused.warning], ["$(milestone) Demo", true]);
  assert.match(refused.tooltip, /The prompt is too long\./);
  assert.doesNotMatch(refused.tooltip, /no usage/);
});

test("the context is what fills the window, and not the sum of several steps", () => {
  const steps = { usage: { inputTokens: 70_000, outputTokens: 300 }, context: { inputTokens: 9_000, outputTokens: 100 } };
  const shown = show({ model, result: steps }, 0, NONE);
  assert.equal(shown.text, "$(milestone) Demo 9.1K/128K ▰▱▱▱▱▱▱▱ ↑70K ↓300");
  assert.equal(shown.warning, false);
  assert.match(shown.tooltip, /9,100 of 128,000 \(7\.1 %\)/);
});

test("before the first answer, and without usage, it makes nothing up", () => {
  assert.equal(show(undefined, 0, NONE).text, "$(milestone) Tollbridge");
  const shown = show({ model, result: {} }, 0, NONE);
  assert.equal(shown.text, "$(milestone) Demo");
  assert.match(shown.tooltip, /no usage/);
});

test("the session is a table", () => {
  const totals = [{ model: "a/b", requests: 3, failures: 1, usage: { inputTokens: 12_345, outputTokens: 6 } }];
  assert.match(totalsTable(totals), /\| a\/b \| 3 \(1 failed\) \| 12,345 \| – \| 6 \| – \|/);
  assert.match(show(undefined, 0, { models: totals, accuracy: [] }).tooltip, /This session/);
});

test("it shows how right its estimates were", () => {
  const measured = { model: "x/demo", requests: 20, exact: 5, median: 0.004, p95: 0.021, worstUnder: -0.013, plainMedian: 0.08, plainP95: 0.2 };
  const usage = { models: [{ model: "x/demo", requests: 20, failures: 0, usage: {} }], accuracy: [measured] };
  const line = /Estimates of 20 prompts: 5 exact, median error 0\.4 %, 95 % within 2\.1 %, never more than 1\.3 % under\. Had nothing been learned: median 8\.0 %, 95 % within 20\.0 %\./;
  assert.match(usagePage(usage), line);
  const known = { model: { ...model, model: "x/demo" }, result: result(10, 1) };
  assert.match(show(known, 0, usage).tooltip, line);
  assert.match(usagePage(NONE), /No request yet/);
});
