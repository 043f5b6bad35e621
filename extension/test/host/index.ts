// Tests that run inside VS Code: they use the provider through VS Code's API, as another extension would. The mock
// gateway answers.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import * as vscode from "vscode";
import type { Thinking } from "../../src/protocol.ts";
import { getAccount, isThinking } from "../../src/undocumented.ts";
import { requireVariable, runAll, test } from "./runner.ts";

export const run = runAll;

type UserContent = Parameters<typeof vscode.LanguageModelChatMessage.User>[0];
type AssistantContent = Parameters<typeof vscode.LanguageModelChatMessage.Assistant>[0];

const User = (content: UserContent) => vscode.LanguageModelChatMessage.User(content);
const Assistant = (content: AssistantContent) => vscode.LanguageModelChatMessage.Assistant(content);
const LIST_DIR = {
  name: "list_dir",
  description: "Lists a folder.",
  inputSchema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
};

async function waitForModels(): Promise<vscode.LanguageModelChat[]> {
  for (let tries = 0; tries < 100; tries++) {
    const models = await vscode.lm.selectChatModels({ vendor: "tollbridge" });
    if (models.length > 0) return models;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("no models of tollbridge");
}

async function getDemoModel(): Promise<vscode.LanguageModelChat> {
  const model = (await waitForModels()).find(({ id }) => id === "tollbridge:demo");
  assert.ok(model);
  return model;
}

type Options = vscode.LanguageModelChatRequestOptions;
type Messages = vscode.LanguageModelChatMessage[];

async function ask(prompt: Messages | string, options: Options = {}, onPart?: (part: unknown) => void) {
  const messages = typeof prompt === "string" ? [User(prompt)] : prompt;
  const response = await (await getDemoModel()).sendRequest(messages, options);
  const parts: unknown[] = [];
  for await (const part of response.stream) {
    parts.push(part);
    onPart?.(part);
  }
  return parts;
}

const textOf = (parts: unknown[]) =>
  parts.map((part) => (part instanceof vscode.LanguageModelTextPart ? part.value : "")).join("");
const dataOf = (parts: unknown[]) => parts.filter((part) => part instanceof vscode.LanguageModelDataPart);

test("an account has the texts of its configuration, trimmed, and its headers", async () => {
  const account = (configuration: object) =>
    getAccount({ silent: true, configuration } as vscode.PrepareLanguageModelChatModelOptions);
  const headers = { "x-provider": "openai", "x-api-key": { secret: "environment:NAME" } };
  assert.deepEqual(account({ baseUrl: " https://host/v1 ", apiKey: "", headers }), { baseUrl: "https://host/v1", headers });
  assert.deepEqual(account({ baseUrl: "https://host/v1", backend: 7 }), { baseUrl: "https://host/v1" });
  assert.equal(account({ headers }), undefined);
});

test("the account's models can be selected, with the gateway's descriptions", async () => {
  const models = await waitForModels();
  assert.deepEqual(models.map(({ id }) => id).sort(), ["tollbridge:demo", "tollbridge:plain"]);
  const model = await getDemoModel();
  assert.deepEqual(
    [model.name, model.vendor, model.family, model.version, model.maxInputTokens],
    ["Demo", "tollbridge", "demo", "1", 119_808],
  );
});

test("texts and messages are counted", async () => {
  const model = await getDemoModel();
  const short = await model.countTokens("hello");
  assert.ok(short > 0 && short <= 5);
  const long = await model.countTokens(User("hello ".repeat(1_000)));
  assert.ok(long > 500 && long < 5_000, String(long));
});

test("the complete text arrives", async () => {
  const text = textOf(await ask("long 500"));
  assert.match(text, /You said “long 500”/);
  assert.match(text, /w1 w2 .*w500$/s);
});

test("thinking arrives with its metadata and is sent back", async () => {
  const parts = await ask("a word about bridges", { modelOptions: { reasoningEffort: "low" } });
  const thoughts: Thinking[] = parts.filter(isThinking);
  assert.match(thoughts.map(({ value }) => value).flat().join(""), /bridges/);
  assert.ok(thoughts.at(-1)?.metadata, "the last part of a block carries its metadata");
  const sentBack = thoughts as unknown as vscode.LanguageModelTextPart[];
  await ask([User("a word about bridges"), Assistant([...sentBack, new vscode.LanguageModelTextPart("x")]), User("reasoning is back")]);
});

test("a tool is called and its result is used", async () => {
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

test("an image is accepted, whatever its mime type says", async () => {
  const png = Buffer.from(requireVariable("TOLLBRIDGE_TEST_PNG"), "base64");
  const picture = vscode.LanguageModelDataPart.image(png, "image/jpeg");
  const text = textOf(await ask([User([new vscode.LanguageModelTextPart("what do you see?"), picture])]));
  assert.match(text, /I see image\/png/);
});

test("an image is returned", async () => {
  const [image] = dataOf(await ask("draw a bridge")).filter(({ mimeType }) => mimeType === "image/png");
  assert.ok(image);
  assert.equal(Buffer.from(image.data).subarray(1, 4).toString(), "PNG");
});

test("the last part is the usage that the gateway reported", async () => {
  const parts = await ask("hello");
  const last = parts.at(-1);
  assert.ok(last instanceof vscode.LanguageModelDataPart);
  assert.equal(last.mimeType, "usage");
  const usage = JSON.parse(Buffer.from(last.data).toString()) as Record<"prompt_tokens" | "completion_tokens" | "total_tokens", number>;
  assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
});

const FAULTS: Record<string, [code: string, sentence: RegExp]> = {
  unauthorized: ["authentication", /Set Up/],
  forbidden: ["permission", /not allowed to use/],
  "not-found": ["not_found", /Refresh Models/],
  "context-too-long": ["context_too_long", /131072/],
  "failed-at-once": ["server", /stopped working/],
  disconnect: ["disconnected", /kept/],
  garbage: ["protocol", /./],
};

for (const [fault, [code, sentence]] of Object.entries(FAULTS)) {
  test(`an error has a message and no stack: ${fault}`, async () => {
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

test("the parts before an error are kept", async () => {
  const parts: unknown[] = [];
  await assert.rejects(ask("long 500 fault:disconnect", {}, (part) => parts.push(part)));
  assert.match(textOf(parts), /w100 /);
});

test("a cancelled answer ends without an error", async () => {
  const source = new vscode.CancellationTokenSource();
  const response = await (await getDemoModel()).sendRequest([User("slow long 2000")], {}, source.token);
  let received = 0;
  for await (const part of response.stream) {
    if (part instanceof vscode.LanguageModelTextPart && ++received === 3) source.cancel();
  }
  assert.ok(received >= 3 && received < 200, String(received));
});

/** Returns the process id of the engine: the child of the extension host that runs exactly the configured command. */
function findEngine(): number | undefined {
  const command = vscode.workspace.getConfiguration("tollbridge").get<string[]>("command", []);
  for (const name of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
    try {
      const parent = Number(readFileSync(`/proc/${name}/stat`, "utf8").split(") ").at(-1)?.split(" ")[1]);
      const argv = readFileSync(`/proc/${name}/cmdline`, "utf8").split("\0").slice(0, -1);
      if (parent === process.pid && isDeepStrictEqual(argv, command)) return Number(name);
    } catch {
      continue; // the process has ended
    }
  }
  return undefined;
}

test("after the engine is killed, the reported parts are kept and the engine is started again", async () => {
  await ask("hello");
  const pid = findEngine();
  assert.ok(pid);
  const parts: unknown[] = [];
  const error = await ask("slow long 2000", {}, (part) => {
    if (parts.push(part) === 5) process.kill(pid, "SIGKILL");
  }).catch((caught: unknown) => caught as Error);
  assert.ok(error instanceof Error);
  assert.match(error.message, /engine stopped while a request was running\. Any partial answer was kept/);
  assert.match(textOf(parts), /You said/);
  assert.match(textOf(await ask("hello again")), /hello again/);
  assert.notEqual(findEngine(), pid);
});

test("an answer interrupted by a restart ends with an error", async () => {
  const parts: unknown[] = [];
  const error = await ask("slow long 2000", {}, (part) => {
    if (parts.push(part) === 5) void vscode.commands.executeCommand("tollbridge.restart");
  }).catch((caught: unknown) => caught as Error);
  assert.ok(error instanceof Error);
  assert.match(error.message, /engine stopped while a request was running\. Any partial answer was kept/);
  assert.match(textOf(await ask("hello again")), /hello again/);
});

test("at 40 tokens per second there is an update at least every 45 ms", async () => {
  const times: number[] = [];
  const parts = await ask("slow long 300", {}, (part) => {
    if (part instanceof vscode.LanguageModelTextPart) times.push(performance.now());
  });
  assert.match(textOf(parts), /w1 w2 .*w300$/s);
  // Parts that arrive in one message are one update.
  const gaps = times.slice(1).map((time, index) => time - (times[index] ?? 0)).filter((gap) => gap > 1);
  gaps.sort((a, b) => a - b);
  const percentile = (share: number) => Math.round(gaps[Math.min(gaps.length - 1, Math.floor(share * gaps.length))] ?? 0);
  const figures = { updates: gaps.length + 1, p50: percentile(0.5), p90: percentile(0.9), max: percentile(1) };
  assert.ok(figures.p50 <= 45, JSON.stringify(figures));
  return figures;
});

test("the counts of one agent turn are fast, and faster the second time", async () => {
  const { first, lengths, calls } = JSON.parse(readFileSync(requireVariable("TOLLBRIDGE_TEST_COUNTS"), "utf8")) as {
    first: number;
    lengths: number[];
    calls: number[];
  };
  const model = await getDemoModel();
  await model.countTokens("warm");
  // Texts that occur in no tool, so that none is prefetched: the worst case.
  const texts = lengths.map((length, index) => `${index} is a text of its own `.repeat(length / 20 + 1).slice(0, length || 1));
  const pass = async () => {
    const started = performance.now();
    for (const index of calls.slice(0, first)) await model.countTokens(texts[index] ?? "");
    return Math.round((performance.now() - started) * 10) / 10;
  };
  const [cold, warm] = [await pass(), await pass()];
  // Each of the 345 texts is a separate request here. The limits are ten times what an idle machine needs.
  assert.ok(cold <= 6000, `${cold} ms without the cache`);
  assert.ok(warm <= 400, `${warm} ms from the cache`);
  return { calls: first, cold, warm };
});
