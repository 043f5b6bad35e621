// Runs the real engine with the Python interpreter in TOLLBRIDGE_PYTHON.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { TollbridgeError } from "../src/errors.ts";
import { type EngineCommand, NO_ENGINE_FOUND } from "../src/find-engine.ts";
import type { Settings } from "../src/protocol.ts";
import { ENGINE_STOPPED, Sidecar, STARTS_PER_MINUTE, TOO_MANY_STARTS } from "../src/sidecar.ts";

const python = process.env["TOLLBRIDGE_PYTHON"] ?? "python3";
const REAL: EngineCommand = { source: "the test", command: python, args: ["-m", "tollbridge.sidecar"] };
const script = (code: string): EngineCommand => ({ source: "a script", command: python, args: ["-c", code] });

interface Status {
  readonly processId: number;
}

const DEFAULTS: Settings = { allowHttp: false, timeouts: {} };

function start(
  t: TestContext,
  commands: EngineCommand[],
  now?: () => number,
  settings = () => DEFAULTS,
  onModelsChanged: () => void = () => undefined,
) {
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  const sidecar = new Sidecar({
    findCommands: async () => commands,
    initializeParams: () => ({ client: { name: "test", version: "1" }, settings: settings() }),
    onModelsChanged,
    log: { info: write, warn: write, error: write },
    ...(now ? { now } : {}),
  });
  t.after(() => sidecar.dispose());
  const status = () => sidecar.request<Status>("status", {});
  return { lines, sidecar, status };
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const failure = (message: string | RegExp) => (error: unknown) => {
  assert.ok(error instanceof TollbridgeError);
  if (typeof message === "string") assert.equal(error.message, message);
  else assert.match(error.message, message);
  assert.equal(error.stack, undefined);
  return true;
};

test("the first request starts the engine, and the next request uses it", async (t) => {
  const { sidecar, status } = start(t, [REAL]);
  const [first, second] = await Promise.all([status(), status()]);
  assert.equal(first.processId, second.processId);
  const { counts } = await sidecar.request<{ counts: number[] }>("count", { model: "m", items: ["a"] });
  assert.equal(counts.length, 1);
});

test("the first working command is used, and the errors of the others are logged", async (t) => {
  const old = script("import sys; sys.stderr.write('Python 3.11 or newer is needed\\n'); sys.exit(3)");
  const missing: EngineCommand = { source: "nothing", command: "/nowhere/python", args: [] };
  const { lines, status } = start(t, [missing, old, REAL]);
  await status();
  assert.ok(lines.some((line) => line.includes("ENOENT")));
  assert.ok(lines.some((line) => line.includes("newer is needed")));
});

test("if no command works, one message says what to do", async (t) => {
  await assert.rejects(start(t, []).status(), failure(NO_ENGINE_FOUND));
  const bad = script("import sys; sys.exit(3)");
  const worse = script("import sys; sys.stderr.write('no module named bridge\\n'); sys.exit(4)");
  await assert.rejects(start(t, [bad, worse]).status(), failure(/Could not start the Tollbridge engine with a script .*no module named bridge; .*code 4/));
  await assert.rejects(start(t, [bad]).status(), failure(/Could not start the Tollbridge engine with a script .*code 3/));
});

test("an engine with another protocol version is rejected with its own message", async (t) => {
  const other = script(
    "import sys\nimport tollbridge.frontends.stdio.wire as w; w.PROTOCOL_VERSION = 99\n" +
      "from tollbridge.sidecar import main; sys.exit(main())",
  );
  await assert.rejects(start(t, [other]).status(), failure(/protocol version 1, this sidecar version 99/));
});

test("when the engine dies, pending requests fail and the next request starts it again", async (t) => {
  const { sidecar, status } = start(t, [REAL]);
  const { processId } = await status();
  const account = { baseUrl: "http://127.0.0.1:9/v1" };
  const pending = sidecar.request("models", { account });
  const rejection = assert.rejects(pending, failure(ENGINE_STOPPED));
  process.kill(processId, "SIGKILL");
  await rejection;
  const next = await status();
  assert.notEqual(next.processId, processId);
});

test("an engine that is frozen ends by itself, and the next request starts it again", async (t) => {
  // A pattern with exponential backtracking: the engine does not react to anything while it is matched.
  const freezing = script(
    "import re, sys\nfrom tollbridge.frontends.stdio import limits, main\n" +
      "limits.LIMITS = limits.SidecarLimits(freeze_seconds=1)\nfrom tollbridge.frontends.stdio import handlers\n" +
      "async def usage(self, params):\n  re.match('(a+)+$', 'a' * 60 + 'b')\n" +
      "handlers.Handlers.usage = usage\nsys.exit(main())",
  );
  const { lines, sidecar, status } = start(t, [freezing]);
  const account = { baseUrl: "http://127.0.0.1:9/v1" };
  await assert.rejects(sidecar.request("models", { account }), /Could not connect/);
  const { processId } = await status();
  await assert.rejects(sidecar.request("usage", {}), failure(ENGINE_STOPPED));
  assert.notEqual((await status()).processId, processId);
  assert.ok(lines.some((line) => line.startsWith("The engine stopped: ")));
  assert.ok(lines.some((line) => line.includes("in usage")));
});

test("an engine that keeps failing is not started again until the user restarts it", async (t) => {
  let time = 0;
  const { sidecar, status } = start(t, [script("raise SystemExit(1)"), script("raise SystemExit(1)")], () => time);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const tick = setInterval(() => t.mock.timers.tick(10_000), 5);
  t.after(() => clearInterval(tick));
  for (let n = 0; n < STARTS_PER_MINUTE; n++) await assert.rejects(status(), failure(/Could not start the Tollbridge engine/));
  await assert.rejects(status(), failure(TOO_MANY_STARTS));
  await assert.rejects(sidecar.restart(), failure(/Could not start the Tollbridge engine/));
  time += 61_000;
  await assert.rejects(status(), failure(/Could not start the Tollbridge engine/));
});

test("a restart starts another process, and dispose leaves none running", async (t) => {
  const { sidecar, status } = start(t, [REAL]);
  const first = await status();
  await sidecar.restart();
  const second = await status();
  assert.notEqual(second.processId, first.processId);
  assert.equal(isRunning(first.processId), false);
  await sidecar.dispose();
  assert.equal(isRunning(second.processId), false);
  await assert.rejects(status(), failure(/closed/));
});

test("changed settings are sent to a running engine and do not start a stopped one", async (t) => {
  let proxy = "";
  const { lines, sidecar, status } = start(t, [REAL], undefined, () => ({ allowHttp: false, timeouts: {}, proxy }));
  await sidecar.settingsChanged();
  assert.deepEqual(lines, []);
  await status();
  const listModels = () => sidecar.request("models", { account: { baseUrl: "http://127.0.0.1:9/v1" } });
  await assert.rejects(listModels(), (error: Error) => !error.message.includes("SOCKS"));
  proxy = "socks5://127.0.0.1:1080";
  await sidecar.settingsChanged();
  await assert.rejects(listModels(), /SOCKS proxies are not supported/);
});

test("a restart during an answer rejects the request", async (t) => {
  const gateway = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders(); // no event follows
  });
  await new Promise<void>((resolve) => gateway.listen(0, "127.0.0.1", resolve));
  t.after(() => gateway.closeAllConnections());
  t.after(() => gateway.close());
  const requestReceived = new Promise((resolve) => gateway.once("request", resolve));
  const { sidecar, status } = start(t, [REAL]);
  await status();
  const account = { baseUrl: `http://127.0.0.1:${(gateway.address() as AddressInfo).port}/v1` };
  const chat = sidecar.request("chat", { account, model: "m", messages: [] }, undefined, { onParts: () => undefined, onWait: () => undefined });
  const rejection = assert.rejects(chat, failure(ENGINE_STOPPED));
  await requestReceived;
  await sidecar.restart();
  await rejection;
});

test("a models/changed notification calls onModelsChanged", async (t) => {
  const notifying = script(
    "import tollbridge.frontends.stdio.methods as m, sys\n" +
      "def status(server, params):\n  server.output.report_models_changed('u')\n  return m.status(server, params)\n" +
      "m.METHODS['status'] = m.Method('reader', status)\nfrom tollbridge.sidecar import main; sys.exit(main())",
  );
  let changed = 0;
  const { status } = start(t, [notifying], undefined, undefined, () => (changed += 1));
  await status();
  assert.equal(changed, 1);
});
