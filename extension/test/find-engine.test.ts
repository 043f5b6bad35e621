import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { test } from "node:test";
import { type EngineSearch, findEngineCommands, findOnPath } from "../src/find-engine.ts";

const NOTHING: EngineSearch = {
  command: [],
  interpreter: "",
  bundledScript: "/x/start.py",
  pythonExtension: undefined,
  findProgram: () => undefined,
};
const commands = (search: Partial<EngineSearch>) =>
  findEngineCommands({ ...NOTHING, ...search }).map(({ command, args }) => [command, ...args]);
const findAny = (name: string) => `/bin/${name}`;

test("the command from the setting is the only one tried", () => {
  const command = ["/venv/bin/tollbridge", "sidecar"];
  assert.deepEqual(commands({ command, interpreter: "/p", findProgram: findAny }), [command]);
});

test("the interpreter from the setting runs the bundled copy and is the only one tried", () => {
  assert.deepEqual(commands({ interpreter: "/p", findProgram: findAny }), [["/p", "-I", "-S", "/x/start.py"]]);
});

test("without settings: the installed command, Python on the PATH, then the Python extension's interpreter", () => {
  assert.deepEqual(commands({ findProgram: findAny, pythonExtension: "/venv/python" }), [
    ["/bin/tollbridge", "sidecar"],
    ["/bin/python3", "-I", "-S", "/x/start.py"],
    ["/bin/python", "-I", "-S", "/x/start.py"],
    ["/venv/python", "-I", "-S", "/x/start.py"],
  ]);
});

test("without any program there is no command to try", () => {
  assert.deepEqual(commands({}), []);
});

test("programs are found only in absolute folders of the PATH", () => {
  const folder = mkdtempSync(join(tmpdir(), "path-"));
  const program = join(folder, "some-program");
  writeFileSync(program, "#!/bin/sh\n");
  assert.equal(findOnPath("some-program", folder), undefined); // not executable
  chmodSync(program, 0o755);
  assert.equal(findOnPath("some-program", ["/nowhere", "", ".", folder].join(delimiter)), program);
  assert.equal(findOnPath("some-program", "."), undefined);
});
