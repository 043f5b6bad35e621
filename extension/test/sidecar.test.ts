// The real engine, started by the Python named in TOLLBRIDGE_PYTHON; its death is real too.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import type { Candidate } from "../src/candidates.ts";
import { NOTHING_FOUND } from "../src/candidates.ts";
import { Failure } from "../src/failure.ts";
import type { Settings } from "../src/protocol.ts";
import { GAVE_UP, Sidecar, STARTS_PER_MINUTE, STOPPED } from "../src/sidecar.ts";

const python = process.env["TOLLBRIDGE_PYTHON"] ?? "python3";
const REAL: Candidate = { what: "the test", command: python, args: ["-m", "tollbridge.sidecar"] };
const script = (code: string): Candidate => ({ what: "a script", command: python, args: ["-c", code] });

interface Status {
  readonly processId: number;
}

const QUIET: Settings = { allowHttp: false, timeouts: {} };

function start(
  t: TestContext,
  candidates: Candidate[],
  now?: () => number,
  settings = () => QUIET,
  modelsChanged: () => void = () => undefined,
) {
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  const sidecar = new Sidecar({
    candidates: async () => candidates,
    greeting: () => ({ client: { name: "test", version: "1" }, settings: settings() }),
    modelsChanged,
    log: { info: write, warn: write, error: write },
    ...(now ? { now } : {}),
  });
  t.after(() => sidecar.dispose());
  const status = () => sidecar.request<Status>("status", {});
  return { lines, sidecar, status };
}

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const failure = (message: string | RegExp) => (error: unknown) => {
  assert.ok(error instanceof Failure);
  if (typeof message === "string") assert.equal(error.message, message);
  else assert.match(error.message, message);
  assert.equal(error.stack, undefined);
  return true;
};

test("it is started by the first question and serves the next", async (t) => {
  const { sidecar, status } = start(t, [REAL]);
  const [one, two] = await Promise.all([status(), status()]);
  assert.equal(one.processId, two.processId);
  const { counts } = await sidecar.request<{ counts: number[] }>("count", { model: "m", items: ["a"] });
  assert.equal(counts.length, 1);
});

test("the first candidate that answers is used, and the others' words are logged", async (t) => {
  const old = script("import sys; sys.stderr.write('Python 3.11 or newer is needed\\n'); sys.exit(3)");
  const missing: Candidate = { what: "nothing", command: "/nowhere/python", args: [] };
  const { lines, status } = start(t, [missing, old, REAL]);
  await status();
  assert.ok(lines.some((line) => line.includes("ENOENT")));
  assert.ok(lines.some((line) => line.includes("newer is needed")));
});

test("where nothing answers, one sentence says what to do", async (t) => {
  await assert.rejects(start(t, []).status(), failure(NOTHING_FOUND));
  const bad = script("import sys; sys.exit(3)");
  const worse = script("import sys; sys.stderr.write('no module named bridge\\n'); sys.exit(4)");
  await assert.rejects(start(t, [bad, worse]).status(), failure(/could not start its engine with a script .*no module named bridge; .*code 4/));
  await assert.rejects(start(t, [bad]).status(), failure(/could not start its engine with a script .*code 3/));
});

test("an engine of another protocol is refused in its own words", async (t) => {
  const other = script(
    "import sys; sys.path[:0]=[]\nimport tollbridge.sidecar.wire as w; w.PROTOCOL_VERSION = 99\n" +
      "from tollbridge.sidecar import main; sys.exit(main())",
  );
  await assert.rejects(start(t, [other]).status(), failure(/protocol version 1 and this sidecar 99/));
});

test("when it dies, those who wait are told, and the next question starts it again", async (t) => {
  const { sidecar, status } = start(t, [REAL]);
  const { processId } = await status();
  const account = { baseUrl: "http://127.0.0.1:9/v1" };
  const waiting = sidecar.request("models", { account });
  const refused = assert.rejects(waiting, failure(STOPPED));
  process.kill(processId, "SIGKILL");
  await refused;
  const next = await status();
  assert.notEqual(next.processId, processId);
});

test("it is not started for ever, until someone insists", async (t) => {
  let time = 0;
  const { sidecar, status } = start(t, [script("raise SystemExit(1)"), script("raise SystemExit(1)")], () => time);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const tick = setInterval(() => t.mock.timers.tick(10_000), 5);
  t.after(() => clearInterval(tick));
  for (let n = 0; n < STARTS_PER_MINUTE; n++) await assert.rejects(status(), failure(/could not start its engine/));
  await assert.rejects(status(), failure(GAVE_UP));
  await assert.rejects(sidecar.restart(), failure(/could not start its engine/));
  time += 61_000;
  await assert.rejects(status(), failure(/could not start its engine/));
});

test("a restart is another process, and an end leaves none", async (t) => {
  const { sidecar, status } = start(t, [REAL]);
  const first = await status();
  await sidecar.restart();
  const second = await status();
  assert.notEqual(second.processId, first.processId);
  assert.equal(runs(first.processId), false);
  await sidecar.dispose();
  assert.equal(runs(second.processId), false);
  await assert.rejects(status(), failure(/closed/));
});

test("settings reach an engine that runs and start none that does not", async (t) => {
  let proxy = "";
  const { lines, sidecar, status } = start(t, [REAL], undefined, () => ({ allowHttp: false, timeouts: {}, proxy }));
  await sidecar.settingsChanged();
  assert.deepEqual(lines, []);
  await status();
  const ask = () => sidecar.request("models", { account: { baseUrl: "http://127.0.0.1:9/v1" } });
  await assert.rejects(ask(), (error: Error) => !error.message.includes("SOCKS"));
  proxy = "socks5://127.0.0.1:1080";
  await sidecar.settingsChanged();
  await assert.rejects(ask(), /SOCKS proxies are not supported/);
});

test("a restart in the middle of an answer is told, and does not pass for its end", async (t) => {
  const gateway = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders(); // and not a word more
  });
  await new Promise<void>((resolve) => gateway.listen(0, "127.0.0.1", resolve));
  t.after(() => gateway.closeAllConnections());
  t.after(() => gateway.close());
  const asked = new Promise((resolve) => gateway.once("request", resolve));
  const { sidecar, status } = start(t, [REAL]);
  await status();
  const account = { baseUrl: `http://127.0.0.1:${(gateway.address() as AddressInfo).port}/v1` };
  const chat = sidecar.request("chat", { account, model: "m", messages: [] }, undefined, () => undefined);
  const told = assert.rejects(chat, failure(STOPPED));
  await asked;
  await sidecar.restart();
  await told;
});

test("a list that the engine fetched behind is told of", async (t) => {
  const noisy = script(
    "import tollbridge.sidecar.server as s, sys\ntake = s.Server._status\n" +
      "def status(self, raw):\n  self._models_changed('u')\n  return take(self, raw)\n" +
      "s.Server._status = status\nfrom tollbridge.sidecar import main; sys.exit(main())",
  );
  let changed = 0;
  const { status } = start(t, [noisy], undefined, undefined, () => (changed += 1));
  await status();
  assert.equal(changed, 1);
});
