// The real engine, started by the Python named in TOLLBRIDGE_PYTHON; its death is real too.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import type { Candidate } from "../src/candidates.ts";
import { NOTHING_FOUND } from "../src/candidates.ts";
import { Failure } from "../src/failure.ts";
import { GAVE_UP, Sidecar, STARTS_PER_MINUTE, STOPPED } from "../src/sidecar.ts";

const python = process.env["TOLLBRIDGE_PYTHON"] ?? "python3";
const REAL: Candidate = { what: "the test", command: python, args: ["-m", "tollbridge.sidecar"] };
const script = (code: string): Candidate => ({ what: "a script", command: python, args: ["-c", code] });

interface Status {
  readonly processId: number;
}

function start(t: TestContext, candidates: Candidate[], now?: () => number) {
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  const sidecar = new Sidecar({
    candidates: async () => candidates,
    greeting: () => ({ client: { name: "test", version: "1" }, settings: { allowHttp: false, timeouts: {} } }),
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
  await assert.rejects(start(t, [bad, bad]).status(), failure(NOTHING_FOUND));
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
  for (let n = 0; n < STARTS_PER_MINUTE; n++) await assert.rejects(status(), failure(NOTHING_FOUND));
  await assert.rejects(status(), failure(GAVE_UP));
  await assert.rejects(sidecar.restart(), failure(NOTHING_FOUND));
  time += 61_000;
  await assert.rejects(status(), failure(NOTHING_FOUND));
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
  const { lines, sidecar, status } = start(t, [REAL]);
  await sidecar.settingsChanged();
  assert.deepEqual(lines, []);
  await status();
  await sidecar.settingsChanged();
  await status();
});
