// Where the engine may be, in the order it is looked for. README.md documents this order.

import { accessSync, constants } from "node:fs";
import { delimiter, isAbsolute, join } from "node:path";

export interface Candidate {
  readonly what: string;
  readonly command: string;
  readonly args: readonly string[];
}

export interface Surroundings {
  readonly command: readonly string[]; // the setting tollbridge.command
  readonly interpreter: string; // the setting tollbridge.interpreter
  readonly bundled: string; // the script that starts the copy inside the extension
  readonly pythonExtension: string | undefined; // the interpreter of the Python extension, where there is one
  readonly find: (name: string) => string | undefined; // a program on the PATH
}

export const NOTHING_FOUND =
  "Tollbridge needs Python 3.11 or newer: install it, or name one in the setting tollbridge.interpreter.";

/** The first that answers is used. What the user named is used alone: a substitute would hide the mistake. */
export function candidates(here: Surroundings): Candidate[] {
  const [command, ...args] = here.command;
  if (command) return [{ what: "the setting tollbridge.command", command, args }];
  if (here.interpreter) return [bundled("the setting tollbridge.interpreter", here.interpreter, here)];
  const found: Candidate[] = [];
  const installed = here.find("tollbridge");
  if (installed) found.push({ what: "the installed tollbridge command", command: installed, args: ["sidecar"] });
  for (const name of ["python3", "python"]) {
    const path = here.find(name);
    if (path) found.push(bundled(`${name} on the PATH`, path, here));
  }
  if (here.pythonExtension) found.push(bundled("the Python extension's interpreter", here.pythonExtension, here));
  return found;
}

/** Isolated: neither the workspace nor the environment adds a folder from which Python would load code. */
function bundled(what: string, python: string, here: Surroundings): Candidate {
  return { what, command: python, args: ["-I", here.bundled] };
}

/** Only absolute folders of the PATH: a relative one would be looked up in the workspace. */
export function findOnPath(name: string, path = process.env["PATH"] ?? ""): string | undefined {
  const endings = process.platform === "win32" ? [".exe", ".cmd"] : [""];
  for (const folder of path.split(delimiter).filter(isAbsolute)) {
    for (const ending of endings) {
      const file = join(folder, name + ending);
      try {
        accessSync(file, constants.X_OK);
        return file;
      } catch {
        continue;
      }
    }
  }
  return undefined;
}
