import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { AGAIN_AFTER_MS, Models, REFRESH_AFTER_MS, RETRY_AFTER_MS } from "../src/models.ts";
import type { Account, ModelInfo } from "../src/protocol.ts";

const ACCOUNT: Account = { baseUrl: "https://gateway.example/v1", apiKey: "sk-secret" };
const model = (id: string) => ({ id, model: id, name: id }) as ModelInfo;
const settle = async () => {
  for (let n = 0; n < 20; n++) await Promise.resolve();
};

function start(answer: (account: Account, insist: boolean) => Promise<ModelInfo[]>, disk = new Map<string, unknown>()) {
  const seen = { asked: [] as Account[], insisted: [] as boolean[], changed: 0, failed: [] as unknown[] };
  const models = new Models({
    fetch: (account, insist) => {
      seen.asked.push(account);
      seen.insisted.push(insist);
      return answer(account, insist);
    },
    memory: {
      get: <T>(key: string) => disk.get(key) as T | undefined,
      update: async (key, value) => void disk.set(key, value),
    },
    changed: () => (seen.changed += 1),
    failed: (_, error) => seen.failed.push(error),
  });
  return { disk, models, seen };
}

test("without a memory the gateway is asked, once", async () => {
  const { models, seen } = start(async () => [model("a")]);
  const [one, two] = await Promise.all([models.list(ACCOUNT), models.list(ACCOUNT)]);
  assert.deepEqual(one, [model("a")]);
  assert.deepEqual(two, one);
  assert.equal(seen.asked.length, 1);
  assert.equal(seen.changed, 0);
});

test("what is remembered is shown at once, and refreshed behind", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { disk } = await first();
  const { models, seen } = start(async () => [model("new")], disk);
  assert.deepEqual(await models.list(ACCOUNT), [model("old")]);
  assert.equal(seen.asked.length, 0);
  t.mock.timers.tick(REFRESH_AFTER_MS);
  await settle();
  assert.equal(seen.changed, 1);
  assert.deepEqual(await models.list(ACCOUNT), [model("new")]);
  assert.equal(seen.asked.length, 1);
});

async function first() {
  const started = start(async () => [model("old")]);
  await started.models.list(ACCOUNT);
  return started;
}

test("a list that has not changed wakes nobody", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { disk } = await first();
  const { models, seen } = start(async () => [model("old")], disk);
  await models.list(ACCOUNT);
  t.mock.timers.tick(REFRESH_AFTER_MS);
  await settle();
  assert.deepEqual([seen.asked.length, seen.changed], [1, 0]);
});

test("a gateway that fails is told of once, leaves what is known, and is asked again later", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { disk } = await first();
  const { models, seen } = start(async () => Promise.reject(new Error("down")), disk);
  await models.list(ACCOUNT);
  t.mock.timers.tick(REFRESH_AFTER_MS);
  await settle();
  assert.deepEqual(await models.list(ACCOUNT), [model("old")]);
  assert.equal(seen.asked.length, 1);
  t.mock.timers.tick(RETRY_AFTER_MS);
  await models.list(ACCOUNT);
  t.mock.timers.tick(REFRESH_AFTER_MS);
  await settle();
  assert.equal(seen.asked.length, 2);
  assert.equal(seen.failed.length, 1);
});

test("where nothing is known the failure is the answer", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { models, seen } = start(async () => Promise.reject(new Error("down")));
  await assert.rejects(models.list(ACCOUNT), /down/);
  await assert.rejects(models.list(ACCOUNT), /down/);
  assert.deepEqual([seen.asked.length, seen.failed.length], [1, 1]);
});

test("a refresh asks for every account again, without waiting", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { models, seen } = await first();
  models.refresh();
  assert.equal(seen.changed, 1);
  await models.list(ACCOUNT);
  t.mock.timers.tick(1);
  await settle();
  assert.equal(seen.asked.length, 2);
});

test("another key is another account, and no key is written down", async () => {
  const { disk, models, seen } = await first();
  await models.list({ ...ACCOUNT, apiKey: "sk-other" });
  models.dispose();
  assert.equal(JSON.stringify([...disk]).includes("sk-"), false);
  assert.equal(seen.asked.length, 1); // the other key's list comes behind the remembered one
  mock.reset();
});

test("a list that the engine fetched behind is taken, without asking the gateway again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let list = [model("old")];
  const { models, seen } = start(async () => list);
  await models.list(ACCOUNT);
  list = [model("new")];
  models.refresh(false); // as when the engine says so
  assert.deepEqual(await models.list(ACCOUNT), [model("old")]);
  t.mock.timers.tick(1);
  await settle();
  assert.equal(seen.changed, 2); // the host is to ask, and to ask again
  assert.deepEqual(await models.list(ACCOUNT), [model("new")]);
  assert.deepEqual(seen.insisted, [true, false]);
});

test("now and then the engine is asked whether its list is still the last", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { models, seen } = await first();
  await models.list(ACCOUNT);
  t.mock.timers.tick(AGAIN_AFTER_MS);
  await models.list(ACCOUNT);
  await models.list(ACCOUNT);
  assert.deepEqual(seen.insisted, [true, false]);
});

test("another protocol is another account", async () => {
  const { disk, models } = await first();
  await models.list({ ...ACCOUNT, backend: "ai-sdk" });
  assert.equal(disk.size, 2);
});
