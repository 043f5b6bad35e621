import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChatResult, ModelInfo } from "../src/protocol.ts";
import { formatBar, formatCost, formatShort, formatStatus, formatTotals } from "../src/usage.ts";

const model = { id: "m", name: "Demo", contextWindow: 128_000, maxInputTokens: 64_000 } as ModelInfo;
const NONE = { models: [] };
const result = (inputTokens: number, outputTokens: number, cachedTokens?: number): ChatResult => ({
  usage: { inputTokens, outputTokens, ...(cachedTokens === undefined ? {} : { cachedTokens }) },
  firstSeconds: 0.412,
  seconds: 3.2,
});

test("numbers are short, and an unknown number is a dash", () => {
  const counts = [undefined, 0, 999, 1_000, 1_234, 99_949, 99_950, 128_000, 999_499, 999_500, 1_048_576];
  assert.deepEqual(counts.map(formatShort), ["–", "0", "999", "1K", "1.2K", "99.9K", "100K", "128K", "999K", "1M", "1M"]);
});

test("the bar is empty only if nothing is used, and full at the limit", () => {
  assert.deepEqual([0, 0.001, 0.5, 1, 7].map(formatBar), ["▱▱▱▱▱▱▱▱", "▰▱▱▱▱▱▱▱", "▰▰▰▰▱▱▱▱", "▰▰▰▰▰▰▰▰", "▰▰▰▰▰▰▰▰"]);
});

test("the status bar shows the model, the context and the last answer's tokens", () => {
  const status = formatStatus({ model, result: result(1_234, 56, 1_000) }, 0, NONE);
  assert.equal(status.text, "$(milestone) Demo 1.3K/128K ▰▱▱▱▱▱▱▱ ↑1.2K ↓56 ⟲1K");
  assert.equal(status.warning, false);
  assert.match(status.tooltip, /1,290 of 128,000 \(1\.0 %\)/);
  assert.match(status.tooltip, /first token 0\.41 s, total 3\.20 s/);
});

test("the icon spins while an answer is streaming", () => {
  assert.match(formatStatus({ model, result: result(10, 1) }, 1, NONE).text, /^\$\(loading~spin\)/);
});

test("only the engine decides that a prompt is near the limit", () => {
  assert.equal(formatStatus({ model, result: result(63_999, 100) }, 0, NONE).warning, false);
});

test("warnings of the engine and rejected prompts are shown", () => {
  const warning = "The prompt uses about 60,000 of 64,000 tokens (94 %).";
  const nearLimit = formatStatus({ model, result: { ...result(10, 1), warning } }, 0, NONE);
  assert.equal(nearLimit.warning, true);
  assert.ok(nearLimit.tooltip.includes(warning));
  const rejected = formatStatus({ model, result: { warning: "The prompt is too long." } }, 0, NONE);
  assert.deepEqual([rejected.text, rejected.warning], ["$(milestone) Demo", true]);
  assert.match(rejected.tooltip, /The prompt is too long\./);
  assert.doesNotMatch(rejected.tooltip, /no usage/);
});

test("the context is the content of the window, not the sum of several steps", () => {
  const steps = { usage: { inputTokens: 70_000, outputTokens: 300 }, context: { inputTokens: 9_000, outputTokens: 100 } };
  const status = formatStatus({ model, result: steps }, 0, NONE);
  assert.equal(status.text, "$(milestone) Demo 9.1K/128K ▰▱▱▱▱▱▱▱ ↑70K ↓300");
  assert.equal(status.warning, false);
  assert.match(status.tooltip, /9,100 of 128,000 \(7\.1 %\)/);
});

test("the tooltip explains a prompt that was not read from the cache", () => {
  const answer = (missed: boolean) => ({ model, result: { ...result(10, 1), cache: { missed, text: "The tool x was added." } } });
  assert.match(formatStatus(answer(true), 0, NONE).tooltip, /The tool x was added\./);
  assert.doesNotMatch(formatStatus(answer(false), 0, NONE).tooltip, /The tool x/);
});

test("before the first answer, and without usage, no numbers are shown", () => {
  assert.equal(formatStatus(undefined, 0, NONE).text, "$(milestone) Tollbridge");
  const status = formatStatus({ model, result: {} }, 0, NONE);
  assert.equal(status.text, "$(milestone) Demo");
  assert.match(status.tooltip, /no usage/);
});

test("the totals of the session are a table", () => {
  const totals = [{ model: "a/b", requests: 3, failures: 1, usage: { inputTokens: 12_345, outputTokens: 6 } }];
  assert.match(formatTotals(totals), /\| a\/b \| 3 \(1 failed\) \| 12,345 \| – \| 6 \| – \|/);
  assert.match(formatStatus(undefined, 0, { models: totals }).tooltip, /This session/);
});

test("the cost of the last answer is shown with at least two significant digits", () => {
  assert.deepEqual(["0", "0.1", "12.345", "0.0123", "0.000098765", "0.0000000001"].map(formatCost), ["$0.00", "$0.10", "$12.35", "$0.012", "$0.000099", "$0.00000000"]);
  const status = formatStatus({ model, result: { ...result(10, 1), cost: { charge: "0.0123" } } }, 0, NONE);
  assert.match(status.text, /↓1 \$0\.012$/);
  assert.match(status.tooltip, /\| cost \| \$0\.012 \|/);
  assert.doesNotMatch(formatStatus({ model, result: result(10, 1) }, 0, NONE).text, /\$\d/);
});
