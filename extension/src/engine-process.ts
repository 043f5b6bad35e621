// Starts the engine: the process, the JSON-RPC connection to it, and the `initialize` request.

import { type ChildProcess, spawn } from "node:child_process";
import { homedir } from "node:os";
import * as rpc from "vscode-jsonrpc/node";
import { TollbridgeError } from "./errors.ts";
import type { EngineCommand } from "./find-engine.ts";
import { PROTOCOL_VERSION, type Settings } from "./protocol.ts";

const INITIALIZE_TIMEOUT_MS = 20_000;
const SHUTDOWN_TIMEOUT_MS = 2_000;
// Makes glibc return free memory to the operating system: 5 MB less after 20 turns of an agent.
const MALLOC = { MALLOC_ARENA_MAX: "2", MALLOC_TRIM_THRESHOLD_: "65536" };
// Lines of standard error that are quoted when the engine does not start.
const QUOTED_LINES = 3;

export interface Log {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

export interface InitializeParams {
  readonly client: { readonly id?: string; readonly name: string; readonly version: string };
  readonly settings: Settings;
}

type InitializeResult = { readonly server: { readonly version: string } };

export interface EngineProcess {
  readonly connection: rpc.MessageConnection;
  readonly version: string;
  /** Resolves when the process has ended, with the reason; all its requests have been rejected by then. */
  readonly ended: Promise<string>;
  /** Requests a shutdown, and kills the process if it does not end in time. */
  stop(): Promise<unknown>;
}

/** Starts the engine in the user's home folder, because Python must not load code from the workspace. */
export async function startEngine(engine: EngineCommand, params: InitializeParams, log: Log): Promise<EngineProcess> {
  const env = { ...MALLOC, ...process.env };
  const child = spawn(engine.command, engine.args, { cwd: homedir(), env, stdio: "pipe", windowsHide: true });
  const lastLines = forwardLog(child.stderr, log);
  const streams = [new rpc.StreamMessageReader(child.stdout), new rpc.StreamMessageWriter(child.stdin)] as const;
  const connection = rpc.createMessageConnection(...streams);
  // `ended` reports a broken pipe; without these handlers the error would crash the extension host.
  child.stdin.on("error", () => undefined);
  connection.onError(() => undefined);
  connection.listen();
  const ended = waitForEnd(child).finally(() => connection.dispose());
  const { server } = await initialize(connection, params, ended, lastLines).catch((error: unknown) => {
    child.kill();
    throw error;
  });
  return { connection, version: server.version, ended, stop: () => shutDown(child, connection, ended) };
}

async function initialize(
  connection: rpc.MessageConnection,
  params: InitializeParams,
  ended: Promise<string>,
  lastLines: readonly string[],
): Promise<InitializeResult> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    const error = new TollbridgeError(`no response within ${INITIALIZE_TIMEOUT_MS / 1000} s`, "sidecar");
    timer = setTimeout(() => reject(error), INITIALIZE_TIMEOUT_MS);
  });
  const exited = ended.then((reason) => Promise.reject(new TollbridgeError([...lastLines, reason].join("; "), "sidecar")));
  const response = connection.sendRequest<InitializeResult>("initialize", { protocolVersion: PROTOCOL_VERSION, ...params });
  // The race below handles one rejection; the other must not be reported as unhandled.
  for (const promise of [exited, response]) promise.catch(() => undefined);
  // A process that exits also breaks the connection: the exit reason is the more useful error.
  const result = response.catch((error: unknown) =>
    error instanceof rpc.ResponseError && error.data ? Promise.reject(error) : exited,
  );
  try {
    return await Promise.race([result, exited, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

function waitForEnd(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("close", (code, signal) => resolve(signal ? `killed by ${signal}` : `exited with code ${code}`));
  });
}

function shutDown(child: ChildProcess, connection: rpc.MessageConnection, ended: Promise<string>): Promise<string> {
  void connection.sendRequest("shutdown").then(
    () => connection.sendNotification("exit"),
    () => undefined,
  );
  const timer = setTimeout(() => child.kill("SIGKILL"), SHUTDOWN_TIMEOUT_MS);
  return ended.finally(() => clearTimeout(timer));
}

/** Copies the engine's log to ours line by line. Returns a list that always holds its last lines. */
function forwardLog(stderr: NodeJS.ReadableStream, log: Log): readonly string[] {
  const lastLines: string[] = [];
  let rest = "";
  stderr.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, level, message] = /^\[(\w+)\] (.*)$/.exec(line) ?? [line, "info", line];
      lastLines.push(message ?? line);
      if (lastLines.length > QUOTED_LINES) lastLines.shift();
      if (level === "error") log.error(message ?? line);
      else if (level === "warning") log.warn(message ?? line);
      else log.info(message ?? line);
    }
  });
  return lastLines;
}
