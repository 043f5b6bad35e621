import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { test } from "node:test";
import { candidates, findOnPath, type Surroundings } from "../src/candidates.ts";

const NOTHING: Surroundings = {
  command: [],
  interpreter: "",
  bundled: "/x/start.py",
  pythonExtension: undefined,
  find: () => undefined,
};
const commands = (here: Partial<Surroundings>) =>
  candidates({ ...NOTHING, ...here }).map(({ command, args }) => [command, ...args]);
const everything = (name: string) => `/bin/${name}`;

test("the command of the setting is used alone", () => {
  const found = commands({ command: ["uvx", "tollbridge", "sidecar"], interpreter: "/p", find: everything });
  assert.deepEqual(found, [["uvx", "tollbridge", "sidecar"]]);
});

test("the interpreter of the setting is used alone, with the bundled copy", () => {
  assert.deepEqual(commands({ interpreter: "/p", find: everything }), [["/p", "-I", "/x/start.py"]]);
});

test("then come the installed command, Python on the PATH and the Python extension's", () => {
  assert.deepEqual(commands({ find: everything, pythonExtension: "/venv/python" }), [
    ["/bin/tollbridge", "sidecar"],
    ["/bin/python3", "-I", "/x/start.py"],
    ["/bin/python", "-I", "/x/start.py"],
    ["/venv/python", "-I", "/x/start.py"],
  ]);
});

test("where there is nothing there is no candidate", () => {
  assert.deepEqual(commands({}), []);
});

test("programs are found in absolute folders of the PATH, and nowhere else", () => {
  const folder = mkdtempSync(join(tmpdir(), "path-"));
  const program = join(folder, "some-program");
  writeFileSync(program, "#!/bin/sh\n");
  assert.equal(findOnPath("some-program", folder), undefined); // it may not be run
  chmodSync(program, 0o755);
  assert.equal(findOnPath("some-program", ["/nowhere", "", ".", folder].join(delimiter)), program);
  assert.equal(findOnPath("some-program", "."), undefined);
});
