// The engine as the rest of the extension sees it: asked, and started when it does not run.

import { type CancellationToken, ErrorCodes, ProgressType, ResponseError } from "vscode-jsonrpc/node";
import { type Candidate, NOTHING_FOUND } from "./candidates.ts";
import { asFailure, Failure } from "./failure.ts";
import { type Engine, type Greeting, launch, type Log } from "./launch.ts";
import type { Part } from "./protocol.ts";

export const STARTS_PER_MINUTE = 5;
export const FIRST_WAIT_MS = 250;
const MINUTE_MS = 60_000;
const CANCELLED = -32800;

export const STOPPED = "Tollbridge's engine stopped; what was said so far is kept. Try again.";
export const GAVE_UP =
  "Tollbridge's engine stopped several times within a minute. Its log says why; “Tollbridge: Restart” tries again.";

const PROGRESS = new ProgressType<{ readonly parts: Part[] }>();

export interface Options {
  readonly candidates: () => Promise<Candidate[]>;
  readonly greeting: () => Greeting;
  readonly log: Log;
  readonly modelsChanged?: () => void; // the engine has fetched another list than the one it gave
  readonly now?: () => number;
}

export class Sidecar {
  private readonly options: Options;
  private readonly now: () => number;
  private engine: Promise<Engine> | undefined;
  private starts: number[] = []; // when, within the last minute
  private nextToken = 0;
  private closed = false;

  constructor(options: Options) {
    this.options = options;
    this.now = options.now ?? Date.now;
  }

  async request<T>(
    method: string,
    params: object,
    token?: CancellationToken,
    report?: (parts: Part[]) => void,
  ): Promise<T> {
    const engine = await this.start();
    const progressToken = ++this.nextToken;
    const listening = report && engine.connection.onProgress(PROGRESS, progressToken, ({ parts }) => report(parts));
    const whole = report ? { ...params, progressToken } : params;
    try {
      // An argument that is there and undefined would be sent as a second parameter.
      return await engine.connection.sendRequest(method, whole, ...(token ? [token] : []));
    } catch (error) {
      throw isAnswer(error) ? error : new Failure(STOPPED, "sidecar");
    } finally {
      listening?.dispose();
    }
  }

  /** Only if it runs: one that starts later is given the settings of that moment. */
  async settingsChanged(): Promise<void> {
    const engine = await this.engine?.catch(() => undefined);
    await engine?.connection.sendNotification("settings", this.options.greeting().settings);
  }

  /** At once, however often it has been started: someone asked for it. */
  async restart(): Promise<void> {
    await this.stop();
    this.starts = [];
    await this.start();
  }

  async dispose(): Promise<void> {
    this.closed = true;
    await this.stop();
  }

  private start(): Promise<Engine> {
    if (this.closed) return Promise.reject(new Failure("Tollbridge has been closed.", "sidecar"));
    if (this.engine) return this.engine;
    const engine = this.startSoon();
    this.engine = engine;
    engine.then(
      (started) => started.ended.then((how) => this.lost(engine, how)),
      () => this.forget(engine),
    );
    return engine;
  }

  private lost(engine: Promise<Engine>, how: string): void {
    if (this.forget(engine)) this.options.log.error(`the engine stopped: ${how}`);
  }

  private forget(engine: Promise<Engine>): boolean {
    const current = this.engine === engine;
    if (current) this.engine = undefined;
    return current;
  }

  /** Later each time, and not for ever. */
  private async startSoon(): Promise<Engine> {
    const now = this.now();
    this.starts = this.starts.filter((when) => now - when < MINUTE_MS);
    if (this.starts.length >= STARTS_PER_MINUTE) throw new Failure(GAVE_UP, "sidecar");
    const before = this.starts.length;
    this.starts.push(now);
    if (before > 0) await new Promise((resolve) => setTimeout(resolve, FIRST_WAIT_MS * 2 ** (before - 1)));
    return this.firstThatAnswers(await this.options.candidates());
  }

  private async firstThatAnswers(candidates: readonly Candidate[]): Promise<Engine> {
    let reason = NOTHING_FOUND;
    for (const candidate of candidates) {
      try {
        const engine = await launch(candidate, this.options.greeting(), this.options.log);
        engine.connection.onNotification("models/changed", () => this.options.modelsChanged?.());
        this.options.log.info(`engine ${engine.version}, started with ${candidate.what} (${candidate.command})`);
        return engine;
      } catch (error) {
        const said = `${candidate.what} (${candidate.command}): ${asFailure(error).message}`;
        this.options.log.warn(said);
        reason = `Tollbridge could not start its engine with ${said}`;
      }
    }
    throw new Failure(reason, "sidecar");
  }

  private async stop(): Promise<void> {
    const stopping = this.engine;
    this.engine = undefined;
    const engine = await stopping?.catch(() => undefined);
    await engine?.stop();
  }
}

/** What is no answer: the pipe broke, or the connection was closed under the question, or the engine was stopped. */
const UNANSWERED: readonly number[] = [
  CANCELLED,
  ErrorCodes.MessageWriteError,
  ErrorCodes.MessageReadError,
  ErrorCodes.PendingResponseRejected,
  ErrorCodes.ConnectionInactive,
];

function isAnswer(error: unknown): boolean {
  return error instanceof ResponseError && !UNANSWERED.includes(error.code);
}
