import assert from "node:assert/strict";
import { test } from "node:test";
import { TokenCounter } from "../src/counter.ts";
import { textsOf } from "../src/schema.ts";

function start(limit?: number, foresee: () => string[] = () => []) {
  const asked: { model: string; items: unknown[] }[] = [];
  const counter = new TokenCounter(async (model, items) => {
    asked.push({ model, items });
    return items.map((item) => JSON.stringify(item).length);
  }, foresee, limit);
  return { asked, counter };
}

test("what is asked in one tick is one call", async () => {
  const { asked, counter } = start();
  const counts = await Promise.all(["a", "bb", "a", "ccc"].map((text) => counter.count("m", text)));
  assert.deepEqual(counts, [3, 4, 3, 5]);
  assert.deepEqual(asked, [{ model: "m", items: ["a", "bb", "ccc"] }]);
});

test("what was asked before is answered without a call and without a wait", async () => {
  const { asked, counter } = start();
  await counter.count("m", "again");
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(counter.count("m", "again"), 7);
  assert.equal(asked.length, 1);
});

test("models, texts and messages are told apart", async () => {
  const { asked, counter } = start();
  const message = { role: 1, content: [{ type: "text" as const, value: "a" }] };
  await Promise.all([
    counter.count("m", "a"),
    counter.count("n", "a"),
    counter.count("m", message),
    counter.count("m", JSON.stringify(message)),
  ]);
  assert.deepEqual(asked.map(({ model, items }) => [model, items.length]), [["m", 3], ["n", 1]]);
});

test("long texts are told apart by all they say", async () => {
  const { counter } = start();
  const long = "x".repeat(100_000);
  assert.equal(await counter.count("m", long), 100_002);
  assert.equal(await counter.count("m", `${long}y`), 100_003);
});

test("the least recently used is forgotten first", async () => {
  const { asked, counter } = start(2);
  await counter.count("m", "a");
  await counter.count("m", "b");
  await counter.count("m", "a");
  await counter.count("m", "c");
  await counter.count("m", "a");
  assert.equal(asked.length, 3);
  await counter.count("m", "b");
  assert.equal(asked.length, 4);
});

test("a failure is told to all who wait and remembered by none", async () => {
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

test("what is foreseen goes along with the first text, and is not asked for again", async () => {
  const { asked, counter } = start(undefined, () => ["type", "string"]);
  assert.equal(await counter.count("m", "first"), 7);
  assert.equal(await counter.count("m", "type"), 6);
  assert.equal(await counter.count("m", "string"), 8);
  assert.deepEqual(asked, [{ model: "m", items: ["type", "string", "first"] }]);
});

test("the texts of a tool are its keys and its strings", () => {
  const inputSchema = { type: "object", properties: { path: { type: "string", enum: ["a", "b"] } }, required: ["path"] };
  const texts = textsOf([{ name: "list", description: "Lists.", inputSchema }]);
  const expected = ["name", "list", "description", "Lists.", "parameters", "properties", "path", "string", "enum", "a", "b", "0"];
  assert.deepEqual(expected.filter((text) => !texts.has(text)), []);
});

test("what the engine has learned since is counted again", async () => {
  const { asked, counter } = start();
  counter.learned(1);
  await counter.count("m", "a");
  counter.learned(1);
  await counter.count("m", "a");
  assert.equal(asked.length, 1);
  counter.learned(2);
  await counter.count("m", "a");
  assert.equal(asked.length, 2);
});

test("after a turn messages are counted again, and texts when something was learned of them", async () => {
  const { asked, counter } = start();
  const message = { role: 1, content: [{ type: "text" as const, value: "a" }] };
  const ask = () => Promise.all([counter.count("m", "a"), counter.count("m", "b".repeat(500)), counter.count("m", message)]);
  counter.learned(1);
  await ask();
  counter.learned(1);
  await ask();
  counter.learned(2);
  await ask();
  assert.deepEqual(asked.map(({ items }) => items.length), [3, 1, 3]);
});
