// VS Code itself asks the provider here, as any other extension would, and the embedded gateway answers.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import * as vscode from "vscode";
import type { Thinking } from "../../src/protocol.ts";
import { isThinking } from "../../src/unofficial.ts";
import { needed, runAll, test } from "./suite.ts";

export const run = runAll;

const User = vscode.LanguageModelChatMessage.User;
const Assistant = vscode.LanguageModelChatMessage.Assistant;
const LIST_DIR = {
  name: "list_dir",
  description: "Lists a folder.",
  inputSchema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
};

async function models(): Promise<vscode.LanguageModelChat[]> {
  for (let tries = 0; tries < 100; tries++) {
    const found = await vscode.lm.selectChatModels({ vendor: "tollbridge" });
    if (found.length > 0) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("no models of tollbridge");
}

async function demo(): Promise<vscode.LanguageModelChat> {
  const found = (await models()).find(({ id }) => id === "tollbridge%2Fdemo");
  assert.ok(found);
  return found;
}

type Options = vscode.LanguageModelChatRequestOptions;
type Messages = vscode.LanguageModelChatMessage[];

async function ask(messages: Messages | string, options: Options = {}, each?: (part: unknown) => void) {
  const asked = typeof messages === "string" ? [User(messages)] : messages;
  const response = await (await demo()).sendRequest(asked, options);
  const parts: unknown[] = [];
  for await (const part of response.stream) {
    parts.push(part);
    each?.(part);
  }
  return parts;
}

const textOf = (parts: unknown[]) =>
  parts.map((part) => (part instanceof vscode.LanguageModelTextPart ? part.value : "")).join("");
const dataOf = (parts: unknown[]) => parts.filter((part) => part instanceof vscode.LanguageModelDataPart);

test("the account's models can be selected, described as the gateway describes them", async () => {
  const found = await models();
  assert.deepEqual(found.map(({ id }) => id).sort(), ["tollbridge%2Fdemo", "tollbridge%2Fplain"]);
  const model = await demo();
  assert.deepEqual(
    [model.name, model.vendor, model.family, model.version, model.maxInputTokens],
    ["Demo", "tollbridge", "demo", "1", 64_000],
  );
});

test("texts and messages are counted", async () => {
  const model = await demo();
  const short = await model.countTokens("hello");
  assert.ok(short > 0 && short <= 5);
  const long = await model.countTokens(User("hello ".repeat(1_000)));
  assert.ok(long > 500 && long < 5_000, String(long));
});

test("text arrives whole", async () => {
  const text = textOf(await ask("long 500"));
  assert.match(text, /You said “long 500”/);
  assert.match(text, /w1 w2 .*w500$/s);
});

test("thinking arrives with what must go back, and goes back", async () => {
  const parts = await ask("a word about bridges", { modelOptions: { reasoningEffort: "low" } });
  const thoughts = parts.filter(isThinking) as Thinking[];
  assert.match(thoughts.map(({ value }) => value).flat().join(""), /bridges/);
  assert.ok(thoughts.at(-1)?.metadata, "the last part of a block carries its metadata");
  const back = thoughts as unknown as vscode.LanguageModelTextPart[];
  await ask([User("a word about bridges"), Assistant([...back, new vscode.LanguageModelTextPart("x")]), User("reasoning is back")]);
});

test("a tool is called, and its result understood", async () => {
  const question = User("use the tool list_dir on src");
  const parts = await ask([question], { tools: [LIST_DIR] });
  const calls = parts.filter((part) => part instanceof vscode.LanguageModelToolCallPart);
  assert.equal(calls.length, 1);
  const call = calls[0] as vscode.LanguageModelToolCallPart;
  assert.equal(call.name, "list_dir");
  const content = [new vscode.LanguageModelTextPart("a.py b.py")];
  const result = new vscode.LanguageModelToolResultPart(call.callId, content);
  const text = textOf(await ask([question, Assistant([call]), User([result])], { tools: [LIST_DIR] }));
  assert.match(text, /a\.py b\.py/);
});

test("an image goes in, whatever it is labelled", async () => {
  const png = Buffer.from(needed("TOLLBRIDGE_TEST_PNG"), "base64");
  const picture = vscode.LanguageModelDataPart.image(png, "image/jpeg");
  const text = textOf(await ask([User([new vscode.LanguageModelTextPart("what do you see?"), picture])]));
  assert.match(text, /I see image\/png/);
});

test("an image comes out", async () => {
  const [image] = dataOf(await ask("draw a bridge")).filter(({ mimeType }) => mimeType === "image/png");
  assert.ok(image);
  assert.equal(Buffer.from(image.data).subarray(1, 4).toString(), "PNG");
});

test("the last part tells the usage the gateway told", async () => {
  const parts = await ask("hello");
  const last = parts.at(-1);
  assert.ok(last instanceof vscode.LanguageModelDataPart);
  assert.equal(last.mimeType, "usage");
  const usage = JSON.parse(Buffer.from(last.data).toString());
  assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
});

const FAULTS: Record<string, [code: string, sentence: RegExp]> = {
  unauthorized: ["authentication", /Set Up/],
  forbidden: ["permission", /may not use/],
  "not-found": ["not_found", /Refresh Models/],
  "context-too-long": ["context_too_long", /131072/],
  "failed-at-once": ["server", /stopped working/],
  disconnect: ["disconnected", /kept/],
  garbage: ["protocol", /./],
};

for (const [fault, [code, sentence]] of Object.entries(FAULTS)) {
  test(`a failure is a sentence without a stack: ${fault}`, async () => {
    const error = await ask(`fault:${fault}`).then(
      () => undefined,
      (caught: unknown) => caught as Error & { code?: string },
    );
    assert.ok(error, "it failed");
    assert.match(error.message, sentence);
    assert.equal(error.code, code);
    assert.doesNotMatch(error.stack ?? "", /extension\.cjs/);
  });
}

test("what was said before a failure is kept", async () => {
  const parts: unknown[] = [];
  await assert.rejects(ask("long 500 fault:disconnect", {}, (part) => parts.push(part)));
  assert.match(textOf(parts), /w100 /);
});

test("a cancelled answer ends quietly", async () => {
  const source = new vscode.CancellationTokenSource();
  const response = await (await demo()).sendRequest([User("slow long 2000")], {}, source.token);
  let seen = 0;
  for await (const part of response.stream) {
    if (part instanceof vscode.LanguageModelTextPart && ++seen === 3) source.cancel();
  }
  assert.ok(seen >= 3 && seen < 200, String(seen));
});

/** The engine's process: the child of this one that is a sidecar. */
function engine(): number | undefined {
  for (const name of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
    try {
      const parent = Number(readFileSync(`/proc/${name}/stat`, "utf8").split(") ").at(-1)?.split(" ")[1]);
      const command = readFileSync(`/proc/${name}/cmdline`, "utf8");
      if (parent === process.pid && command.includes("tollbridge")) return Number(name);
    } catch {
      continue;
    }
  }
  return undefined;
}

test("an engine killed in the middle loses nothing that was reported, and is started again", async () => {
  await ask("hello");
  const pid = engine();
  assert.ok(pid);
  const parts: unknown[] = [];
  const error = await ask("slow long 2000", {}, (part) => {
    if (parts.push(part) === 5) process.kill(pid, "SIGKILL");
  }).catch((caught: unknown) => caught as Error);
  assert.ok(error instanceof Error);
  assert.match(error.message, /engine stopped; what was said so far is kept/);
  assert.match(textOf(parts), /You said/);
  assert.match(textOf(await ask("hello again")), /hello again/);
  assert.notEqual(engine(), pid);
});

test("an answer cut short by a restart says so", async () => {
  const parts: unknown[] = [];
  const error = await ask("slow long 2000", {}, (part) => {
    if (parts.push(part) === 5) void vscode.commands.executeCommand("tollbridge.restart");
  }).catch((caught: unknown) => caught as Error);
  assert.ok(error instanceof Error);
  assert.match(error.message, /engine stopped; what was said so far is kept/);
  assert.match(textOf(await ask("hello again")), /hello again/);
});

test("at 40 tokens a second the reader sees an update at least every 45 ms", async () => {
  const seen: number[] = [];
  const parts = await ask("slow long 300", {}, (part) => {
    if (part instanceof vscode.LanguageModelTextPart) seen.push(performance.now());
  });
  assert.match(textOf(parts), /w1 w2 .*w300$/s);
  // Parts that come in one message are one update.
  const gaps = seen.slice(1).map((at, index) => at - (seen[index] ?? 0)).filter((gap) => gap > 1);
  gaps.sort((a, b) => a - b);
  const at = (share: number) => Math.round(gaps[Math.min(gaps.length - 1, Math.floor(share * gaps.length))] ?? 0);
  const figures = { updates: gaps.length + 1, p50: at(0.5), p90: at(0.9), max: at(1) };
  assert.ok(figures.p50 <= 45, JSON.stringify(figures));
  return figures;
});

test("the counts of one agent turn cost little, and next to nothing the second time", async () => {
  const { first, lengths, calls } = JSON.parse(readFileSync(needed("TOLLBRIDGE_TEST_COUNTS"), "utf8")) as {
    first: number;
    lengths: number[];
    calls: number[];
  };
  const model = await demo();
  await model.countTokens("warm");
  // Texts that no tool has, so that none is foreseen: the worst case.
  const texts = lengths.map((length, index) => `${index} is a text of its own `.repeat(length / 20 + 1).slice(0, length || 1));
  const pass = async () => {
    const started = performance.now();
    for (const index of calls.slice(0, first)) await model.countTokens(texts[index] ?? "");
    return Math.round((performance.now() - started) * 10) / 10;
  };
  const [cold, warm] = [await pass(), await pass()];
  // Every one of the 345 texts is a trip of its own here.
  const slow = await slowness();
  assert.ok(cold <= 600 * slow, `cold ${cold} ms, the event loop ${slow} times slower`);
  assert.ok(warm <= 40 * slow, `warm ${warm} ms, the event loop ${slow} times slower`);
  return { calls: first, cold, warm, slow };
});

/** How much slower than alone the event loop turns just now, up to 10 times: 2,000 turns of it take 10 ms then. */
async function slowness(): Promise<number> {
  const started = performance.now();
  for (let n = 0; n < 2_000; n++) await new Promise((resolve) => setImmediate(resolve));
  return Math.min(10, Math.max(1, (performance.now() - started) / 10));
}
