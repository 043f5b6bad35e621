import assert from "node:assert/strict";
import { test } from "node:test";
import { collectToolTexts, TokenCounter } from "../src/token-counter.ts";

function start(cacheSize?: number, predictTexts: () => string[] = () => []) {
  const requests: { model: string; items: unknown[] }[] = [];
  const counter = new TokenCounter(async (model, items) => {
    requests.push({ model, items });
    return items.map((item) => JSON.stringify(item).length);
  }, predictTexts, cacheSize);
  return { requests, counter };
}

test("counts requested in one tick are sent as one request", async () => {
  const { requests, counter } = start();
  const counts = await Promise.all(["a", "bb", "a", "ccc"].map(async (text) => counter.count("m", text)));
  assert.deepEqual(counts, [3, 4, 3, 5]);
  assert.deepEqual(requests, [{ model: "m", items: ["a", "bb", "ccc"] }]);
});

test("a cached count is returned synchronously without a request", async () => {
  const { requests, counter } = start();
  await counter.count("m", "again");
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(counter.count("m", "again"), 7);
  assert.equal(requests.length, 1);
});

test("counts are cached separately by model, and by text or message", async () => {
  const { requests, counter } = start();
  const message = { role: 1, content: [{ type: "text" as const, value: "a" }] };
  await Promise.all([
    counter.count("m", "a"),
    counter.count("n", "a"),
    counter.count("m", message),
    counter.count("m", JSON.stringify(message)),
  ]);
  assert.deepEqual(requests.map(({ model, items }) => [model, items.length]), [["m", 3], ["n", 1]]);
});

test("long texts with the same beginning have different cache entries", async () => {
  const { counter } = start();
  const long = "x".repeat(100_000);
  assert.equal(await counter.count("m", long), 100_002);
  assert.equal(await counter.count("m", `${long}y`), 100_003);
});

test("the least recently used entry is evicted first", async () => {
  const { requests, counter } = start(2);
  await counter.count("m", "a");
  await counter.count("m", "b");
  await counter.count("m", "a");
  await counter.count("m", "c");
  await counter.count("m", "a");
  assert.equal(requests.length, 3);
  await counter.count("m", "b");
  assert.equal(requests.length, 4);
});

test("a failed batch rejects all its counts and is not cached", async () => {
  let fail = true;
  const counter = new TokenCounter(async (_, items) => {
    if (fail) throw new Error("gone");
    return items.map(() => 1);
  });
  const [first, second] = await Promise.allSettled([counter.count("m", "a"), counter.count("m", "b")]);
  assert.equal(first?.status, "rejected");
  assert.equal(second?.status, "rejected");
  fail = false;
  assert.equal(await counter.count("m", "a"), 1);
});

test("predicted texts are sent with the first text and not requested again", async () => {
  const { requests, counter } = start(undefined, () => ["type", "string"]);
  assert.equal(await counter.count("m", "first"), 7);
  assert.equal(await counter.count("m", "type"), 6);
  assert.equal(await counter.count("m", "string"), 8);
  assert.deepEqual(requests, [{ model: "m", items: ["type", "string", "first"] }]);
});

test("the texts of a tool are the keys and strings of its schema", () => {
  const inputSchema = { type: "object", properties: { path: { type: "string", enum: ["a", "b"] } }, required: ["path"] };
  const texts = collectToolTexts([{ name: "list", description: "Lists.", inputSchema }]);
  const expected = ["name", "list", "description", "Lists.", "parameters", "properties", "path", "string", "enum", "a", "b", "0"];
  assert.deepEqual(expected.filter((text) => !texts.has(text)), []);
});

test("a new revision discards cached counts", async () => {
  const { requests, counter } = start();
  counter.invalidate(1);
  await counter.count("m", "a");
  counter.invalidate(1);
  await counter.count("m", "a");
  assert.equal(requests.length, 1);
  counter.invalidate(2);
  await counter.count("m", "a");
  assert.equal(requests.length, 2);
});

test("a turn discards the counts of messages, and those of texts only with a new revision", async () => {
  const { requests, counter } = start();
  const message = { role: 1, content: [{ type: "text" as const, value: "a" }] };
  const countAll = () => Promise.all([counter.count("m", "a"), counter.count("m", "b".repeat(500)), counter.count("m", message)]);
  counter.invalidate(1);
  await countAll();
  counter.invalidate(1);
  await countAll();
  counter.invalidate(2);
  await countAll();
  assert.deepEqual(requests.map(({ items }) => items.length), [3, 1, 3]);
});
