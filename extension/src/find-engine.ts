// Commands that can start the engine, in the order in which they are tried. README.md documents this order.

import { accessSync, constants } from "node:fs";
import { delimiter, isAbsolute, join } from "node:path";

export interface EngineCommand {
  /** Where the command comes from, for log lines and error messages. */
  readonly source: string;
  readonly command: string;
  readonly args: readonly string[];
}

export interface EngineSearch {
  /** The setting `tollbridge.command`. */
  readonly command: readonly string[];
  /** The setting `tollbridge.interpreter`. */
  readonly interpreter: string;
  /** Path of the script that starts the copy inside the extension. */
  readonly bundledScript: string;
  /** The interpreter selected in the Python extension, if that extension is installed. */
  readonly pythonExtension: string | undefined;
  /** Returns the path of a program on the PATH. */
  readonly findProgram: (name: string) => string | undefined;
}

export const NO_ENGINE_FOUND =
  "Tollbridge needs Python 3.11 or newer. Install it, or set tollbridge.interpreter to the path of a Python interpreter.";

/**
 * Lists the commands to try; the caller uses the first that works.
 *
 * If a setting is present, only that command is returned: a fallback would hide an error in the setting.
 */
export function findEngineCommands(search: EngineSearch): EngineCommand[] {
  const [command, ...args] = search.command;
  if (command) return [{ source: "the setting tollbridge.command", command, args }];
  if (search.interpreter) return [bundledEngine("the setting tollbridge.interpreter", search.interpreter, search)];
  const commands: EngineCommand[] = [];
  const installed = search.findProgram("tollbridge");
  if (installed) commands.push({ source: "the installed tollbridge command", command: installed, args: ["sidecar"] });
  for (const name of ["python3", "python"]) {
    const path = search.findProgram(name);
    if (path) commands.push(bundledEngine(`${name} on the PATH`, path, search));
  }
  if (search.pythonExtension) {
    commands.push(bundledEngine("the Python extension's interpreter", search.pythonExtension, search));
  }
  return commands;
}

/** Runs Python in isolated mode: only the extension and the standard library are on its module path. */
function bundledEngine(source: string, python: string, search: EngineSearch): EngineCommand {
  return { source, command: python, args: ["-I", "-S", search.bundledScript] };
}

/** Searches only the absolute folders of the PATH: a relative folder would be resolved in the workspace. */
export function findOnPath(name: string, path = process.env["PATH"] ?? ""): string | undefined {
  const suffixes = process.platform === "win32" ? [".exe", ".cmd"] : [""];
  for (const folder of path.split(delimiter).filter(isAbsolute)) {
    for (const suffix of suffixes) {
      const file = join(folder, name + suffix);
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
