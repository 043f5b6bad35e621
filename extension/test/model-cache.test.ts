import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { createAccountIds, ModelCache, RECHECK_INTERVAL_MS, REFRESH_DELAY_MS, RETRY_DELAY_MS } from "../src/model-cache.ts";
import type { Account, ModelInfo } from "../src/protocol.ts";

const ACCOUNT: Account = { baseUrl: "https://gateway.example/v1", apiKey: "sk-secret" };
const model = (id: string) => ({ id, model: id, name: id }) as ModelInfo;
const settle = async () => {
  for (let n = 0; n < 20; n++) await Promise.resolve();
};

function start(respond: (account: Account, refresh: boolean) => Promise<ModelInfo[]>, disk = new Map<string, unknown>()) {
  const calls = { accounts: [] as Account[], refresh: [] as boolean[], changed: 0, failed: [] as unknown[] };
  const models = new ModelCache({
    fetch: (account, refresh) => {
      calls.accounts.push(account);
      calls.refresh.push(refresh);
      return respond(account, refresh);
    },
    storage: {
      get: <T>(key: string) => disk.get(key) as T,
      update: async (key, value) => void disk.set(key, value),
    },
    onChanged: () => (calls.changed += 1),
    onFailed: (_, error) => calls.failed.push(error),
  });
  return { disk, models, calls };
}

test("without a stored list the gateway is asked once", async () => {
  const { models, calls } = start(async () => [model("a")]);
  const [first, second] = await Promise.all([models.list(ACCOUNT), models.list(ACCOUNT)]);
  assert.deepEqual(first, [model("a")]);
  assert.deepEqual(second, first);
  assert.equal(calls.accounts.length, 1);
  assert.equal(calls.changed, 0);
});

test("a stored list is returned immediately and refreshed in the background", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { disk } = await startWithStoredList();
  const { models, calls } = start(async () => [model("new")], disk);
  assert.deepEqual(await models.list(ACCOUNT), [model("old")]);
  assert.equal(calls.accounts.length, 0);
  t.mock.timers.tick(REFRESH_DELAY_MS);
  await settle();
  assert.equal(calls.changed, 1);
  assert.deepEqual(await models.list(ACCOUNT), [model("new")]);
  assert.equal(calls.accounts.length, 1);
});

async function startWithStoredList() {
  const started = start(async () => [model("old")]);
  await started.models.list(ACCOUNT);
  return started;
}

test("an unchanged list sends no change event", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { disk } = await startWithStoredList();
  const { models, calls } = start(async () => [model("old")], disk);
  await models.list(ACCOUNT);
  t.mock.timers.tick(REFRESH_DELAY_MS);
  await settle();
  assert.deepEqual([calls.accounts.length, calls.changed], [1, 0]);
});

test("a failing gateway is reported once, keeps the stored list, and is asked again later", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { disk } = await startWithStoredList();
  const { models, calls } = start(async () => Promise.reject(new Error("down")), disk);
  await models.list(ACCOUNT);
  t.mock.timers.tick(REFRESH_DELAY_MS);
  await settle();
  assert.deepEqual(await models.list(ACCOUNT), [model("old")]);
  assert.equal(calls.accounts.length, 1);
  t.mock.timers.tick(RETRY_DELAY_MS);
  await models.list(ACCOUNT);
  t.mock.timers.tick(REFRESH_DELAY_MS);
  await settle();
  assert.equal(calls.accounts.length, 2);
  assert.equal(calls.failed.length, 1);
});

test("without a stored list the failure is returned", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { models, calls } = start(async () => Promise.reject(new Error("down")));
  await assert.rejects(models.list(ACCOUNT), /down/);
  await assert.rejects(models.list(ACCOUNT), /down/);
  assert.deepEqual([calls.accounts.length, calls.failed.length], [1, 1]);
});

test("a refresh requests every list again without a delay", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { models, calls } = await startWithStoredList();
  models.refresh();
  assert.equal(calls.changed, 1);
  await models.list(ACCOUNT);
  t.mock.timers.tick(1);
  await settle();
  assert.equal(calls.accounts.length, 2);
});

test("another key is another account, and keys are not stored", async () => {
  const { disk, models, calls } = await startWithStoredList();
  await models.list({ ...ACCOUNT, apiKey: "sk-other" });
  models.dispose();
  assert.equal(JSON.stringify([...disk]).includes("sk-"), false);
  assert.equal(calls.accounts.length, 1); // the stored list is returned first
  mock.reset();
});

test("a list that the engine fetched in the background is used without asking the gateway again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let list = [model("old")];
  const { models, calls } = start(async () => list);
  await models.list(ACCOUNT);
  list = [model("new")];
  models.refresh(false); // as for a models/changed notification
  assert.deepEqual(await models.list(ACCOUNT), [model("old")]);
  t.mock.timers.tick(1);
  await settle();
  assert.equal(calls.changed, 2); // once for the refresh, once for the new list
  assert.deepEqual(await models.list(ACCOUNT), [model("new")]);
  assert.deepEqual(calls.refresh, [true, false]);
});

test("the engine is asked again at intervals", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const { models, calls } = await startWithStoredList();
  await models.list(ACCOUNT);
  t.mock.timers.tick(RECHECK_INTERVAL_MS);
  await models.list(ACCOUNT);
  await models.list(ACCOUNT);
  assert.deepEqual(calls.refresh, [true, false]);
});

test("another protocol is another account", async () => {
  const { disk, models } = await startWithStoredList();
  await models.list({ ...ACCOUNT, backend: "ai-sdk" });
  assert.equal(disk.size, 2);
});

test("each account has an id of its own that stays the same and does not reveal the key", async () => {
  const disk = new Map<string, string>();
  const secrets = {
    get: async (name: string) => disk.get(name),
    store: async (name: string, value: string) => void disk.set(name, value),
  };
  const identify = createAccountIds(secrets);
  const [one, other] = [await identify(ACCOUNT), await identify({ ...ACCOUNT, apiKey: "sk-other" })];
  assert.match(one.id ?? "", /^[0-9a-f-]{36}$/);
  assert.notEqual(one.id, other.id);
  assert.deepEqual(await identify(ACCOUNT), one);
  assert.deepEqual(await createAccountIds(secrets)(ACCOUNT), one); // after a restart
  assert.doesNotMatch([...disk.values()].join(), /sk-/);
});

test("an account has an id even if secret storage fails", async () => {
  const fail = () => Promise.reject(new Error("locked"));
  const identify = createAccountIds({ get: fail, store: fail });
  const account = await identify(ACCOUNT);
  assert.ok(account.id);
  assert.deepEqual(await identify(ACCOUNT), account);
});

test("accounts of one gateway do not share a stored list", async () => {
  const { disk, models } = start(async () => [model("first")]);
  await models.list({ ...ACCOUNT, id: "a-1" });
  const restarted = start(async () => Promise.reject(new Error("wrong key")), disk);
  assert.deepEqual(await restarted.models.list({ ...ACCOUNT, id: "a-1" }), [model("first")]);
  await assert.rejects(restarted.models.list({ baseUrl: ACCOUNT.baseUrl, apiKey: "wrong", id: "a-2" }), /wrong key/);
});
