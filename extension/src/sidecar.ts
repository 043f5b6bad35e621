// Sends requests to the engine, and starts it if it is not running.

import { type CancellationToken, ErrorCodes, ProgressType, ResponseError } from "vscode-jsonrpc/node";
import { type EngineProcess, type InitializeParams, type Log, startEngine } from "./engine-process.ts";
import { toTollbridgeError, TollbridgeError } from "./errors.ts";
import { type EngineCommand, NO_ENGINE_FOUND } from "./find-engine.ts";
import type { Part, Wait } from "./protocol.ts";

export const STARTS_PER_MINUTE = 5;
export const FIRST_DELAY_MS = 250;
const MINUTE_MS = 60_000;
const REQUEST_CANCELLED = -32800;

export const ENGINE_STOPPED =
  "The Tollbridge engine stopped while a request was running. Any partial answer was kept. Try again.";
export const TOO_MANY_STARTS =
  "The Tollbridge engine stopped several times within a minute. See the log, then run “Tollbridge: Restart”.";

/** Receives what the engine sends while a request is running. */
export interface Listener {
  readonly onParts: (parts: Part[]) => void;
  readonly onWait: (wait: Wait) => void;
}
const PROGRESS = new ProgressType<{ readonly parts: Part[] }>();
type WaitParams = { readonly token: number; readonly value: Wait };

export interface SidecarOptions {
  readonly findCommands: () => Promise<EngineCommand[]>;
  readonly initializeParams: () => InitializeParams;
  readonly log: Log;
  /** Called when the engine has fetched a model list that differs from the one it returned before. */
  readonly onModelsChanged?: () => void;
  readonly now?: () => number;
}

export class Sidecar {
  private readonly options: SidecarOptions;
  private readonly now: () => number;
  private engine: Promise<EngineProcess> | undefined;
  private startTimes: number[] = []; // of the last minute
  private nextToken = 0;
  private readonly listeners = new Map<number, Listener>(); // by progress token
  private closed = false;

  constructor(options: SidecarOptions) {
    this.options = options;
    this.now = options.now ?? Date.now;
  }

  /** Sends a request and returns its result. */
  async request<T>(method: string, params: object, token?: CancellationToken, listener?: Listener): Promise<T> {
    const engine = await this.start();
    const progressToken = ++this.nextToken;
    const progress = listener && engine.connection.onProgress(PROGRESS, progressToken, ({ parts }) => listener.onParts(parts));
    if (listener) this.listeners.set(progressToken, listener);
    const fullParams = listener ? { ...params, progressToken } : params;
    try {
      // An explicit undefined token would be sent as a second parameter.
      return await engine.connection.sendRequest(method, fullParams, ...(token ? [token] : []));
    } catch (error) {
      throw isErrorResponse(error) ? error : new TollbridgeError(ENGINE_STOPPED, "sidecar");
    } finally {
      progress?.dispose();
      this.listeners.delete(progressToken);
    }
  }

  /** Sends the settings to a running engine. An engine that starts later receives them in `initialize`. */
  async settingsChanged(): Promise<void> {
    const engine = await this.engine?.catch(() => undefined);
    await engine?.connection.sendNotification("settings", this.options.initializeParams().settings);
  }

  /** Restarts immediately, regardless of the limit on starts: the user requested it. */
  async restart(): Promise<void> {
    await this.stop();
    this.startTimes = [];
    await this.start();
  }

  async dispose(): Promise<void> {
    this.closed = true;
    await this.stop();
  }

  private start(): Promise<EngineProcess> {
    if (this.closed) return Promise.reject(new TollbridgeError("Tollbridge has been closed.", "sidecar"));
    if (this.engine) return this.engine;
    const engine = this.startWithDelay();
    this.engine = engine;
    const logExit = (reason: string) => this.remove(engine) && this.options.log.error(`The engine stopped: ${reason}`);
    engine.then(
      (process) => process.ended.then(logExit),
      () => this.remove(engine),
    );
    return engine;
  }

  /** Returns false if the engine was already replaced or stopped on purpose. */
  private remove(engine: Promise<EngineProcess>): boolean {
    const current = this.engine === engine;
    if (current) this.engine = undefined;
    return current;
  }

  /** Waits longer before each repeated start, and fails after too many within a minute. */
  private async startWithDelay(): Promise<EngineProcess> {
    const now = this.now();
    this.startTimes = this.startTimes.filter((time) => now - time < MINUTE_MS);
    if (this.startTimes.length >= STARTS_PER_MINUTE) throw new TollbridgeError(TOO_MANY_STARTS, "sidecar");
    const earlier = this.startTimes.length;
    this.startTimes.push(now);
    if (earlier > 0) await new Promise((resolve) => setTimeout(resolve, FIRST_DELAY_MS * 2 ** (earlier - 1)));
    return this.startFirstWorking(await this.options.findCommands());
  }

  private async startFirstWorking(commands: readonly EngineCommand[]): Promise<EngineProcess> {
    let message = NO_ENGINE_FOUND;
    for (const command of commands) {
      try {
        const engine = await startEngine(command, this.options.initializeParams(), this.options.log);
        engine.connection.onNotification("models/changed", () => this.options.onModelsChanged?.());
        engine.connection.onNotification("$/wait", ({ token, value }: WaitParams) => this.listeners.get(token)?.onWait(value));
        this.options.log.info(`Started engine ${engine.version} with ${command.source} (${command.command})`);
        return engine;
      } catch (error) {
        const reason = `${command.source} (${command.command}): ${toTollbridgeError(error).message}`;
        message = `Could not start the Tollbridge engine with ${reason}`;
        this.options.log.warn(message);
      }
    }
    throw new TollbridgeError(message, "sidecar");
  }

  private async stop(): Promise<void> {
    const starting = this.engine;
    this.engine = undefined;
    const engine = await starting?.catch(() => undefined);
    await engine?.stop();
  }
}

const { MessageWriteError, MessageReadError, PendingResponseRejected, ConnectionInactive } = ErrorCodes;
/** Errors without a response: the pipe broke, the connection was closed, or the engine was stopped. */
const CONNECTION_ERRORS: readonly number[] = [
  REQUEST_CANCELLED, MessageWriteError, MessageReadError, PendingResponseRejected, ConnectionInactive,
];

function isErrorResponse(error: unknown): boolean {
  return error instanceof ResponseError && !CONNECTION_ERRORS.includes(error.code);
}
