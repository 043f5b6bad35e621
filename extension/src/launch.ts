// Starting the engine: a process, a connection to it, and its greeting.

import { type ChildProcess, spawn } from "node:child_process";
import { homedir } from "node:os";
import {
  createMessageConnection,
  type MessageConnection,
  ResponseError,
  StreamMessageReader,
  StreamMessageWriter,
} from "vscode-jsonrpc/node";
import type { Candidate } from "./candidates.ts";
import { Failure } from "./failure.ts";
import { PROTOCOL_VERSION, type Settings } from "./protocol.ts";

const GREETING_MS = 20_000;
const PARTING_MS = 2_000;
const QUOTED_LINES = 3;

export interface Log {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

export interface Greeting {
  readonly client: { readonly name: string; readonly version: string };
  readonly settings: Settings;
}

type Hello = { readonly server: { readonly version: string } };

export interface Engine {
  readonly connection: MessageConnection;
  readonly version: string;
  /** How it ended, in words; by then every request to it has been refused. */
  readonly ended: Promise<string>;
  /** Asks it to leave, and insists after a while. */
  stop(): Promise<unknown>;
}

/** At home in the user's folder: a workspace must not be a place Python loads code from. */
export async function launch(candidate: Candidate, greeting: Greeting, log: Log): Promise<Engine> {
  const child = spawn(candidate.command, candidate.args, { cwd: homedir(), stdio: "pipe", windowsHide: true });
  const said = follow(child.stderr, log);
  const connection = createMessageConnection(
    new StreamMessageReader(child.stdout),
    new StreamMessageWriter(child.stdin),
  );
  // A pipe that breaks is told by the process's end; unheard, it would take the extension host down.
  child.stdin.on("error", () => undefined);
  connection.onError(() => undefined);
  connection.listen();
  const ended = ending(child).then((how) => {
    connection.dispose();
    return how;
  });
  const { server } = await greet(connection, greeting, ended, said).catch((error: unknown) => {
    child.kill();
    throw error;
  });
  return { connection, version: server.version, ended, stop: () => part(child, connection, ended) };
}

async function greet(
  connection: MessageConnection,
  greeting: Greeting,
  ended: Promise<string>,
  said: readonly string[],
): Promise<Hello> {
  let timer: NodeJS.Timeout | undefined;
  const tooSlow = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Failure(`no answer within ${GREETING_MS / 1000} s`, "sidecar")), GREETING_MS);
  });
  const tooSoon = ended.then((how) => Promise.reject(new Failure([...said, how].join("; "), "sidecar")));
  const hello = connection.sendRequest<Hello>("initialize", { protocolVersion: PROTOCOL_VERSION, ...greeting });
  for (const promise of [tooSoon, hello]) promise.catch(() => undefined); // one of them is heard below
  // One that leaves at once breaks the connection as well: how it ended says more.
  const answer = hello.catch((error: unknown) => (error instanceof ResponseError && error.data ? Promise.reject(error) : tooSoon));
  try {
    return await Promise.race([answer, tooSoon, tooSlow]);
  } finally {
    clearTimeout(timer);
  }
}

function ending(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("close", (code, signal) => resolve(signal ? `it was ended by ${signal}` : `it left with code ${code}`));
  });
}

function part(child: ChildProcess, connection: MessageConnection, ended: Promise<string>): Promise<string> {
  void connection.sendRequest("shutdown").then(
    () => connection.sendNotification("exit"),
    () => undefined,
  );
  const timer = setTimeout(() => child.kill("SIGKILL"), PARTING_MS);
  return ended.finally(() => clearTimeout(timer));
}

/** The engine's log into ours, line by line; its last lines are kept to say why a start failed. */
function follow(stderr: NodeJS.ReadableStream, log: Log): readonly string[] {
  const last: string[] = [];
  let rest = "";
  stderr.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, level, message] = /^\[(\w+)\] (.*)$/.exec(line) ?? [line, "info", line];
      last.push(message ?? line);
      if (last.length > QUOTED_LINES) last.shift();
      if (level === "error") log.error(message ?? line);
      else if (level === "warning") log.warn(message ?? line);
      else log.info(message ?? line);
    }
  });
  return last;
}
