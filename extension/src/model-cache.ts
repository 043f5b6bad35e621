// The models of each account: immediately from the copy on disk, then updated from the engine.

import { createHash, randomUUID } from "node:crypto";
import type { Memento, SecretStorage } from "vscode";
import type { Account, ModelInfo } from "./protocol.ts";

/** Delay of the first update, so that the engine process does not start while VS Code is starting. */
export const REFRESH_DELAY_MS = 3_000;
/** Delay until a failed request is repeated: VS Code may ask for models many times per second. */
export const RETRY_DELAY_MS = 5_000;
/** Interval at which the engine is asked for a list again, so that it checks its own copy in the background. */
export const RECHECK_INTERVAL_MS = 300_000;

export interface ModelCacheOptions {
  /** Requests a list from the engine. With `refresh`, the engine asks the gateway; otherwise it may use its copy. */
  readonly fetch: (account: Account, refresh: boolean) => Promise<ModelInfo[]>;
  /** Key-value storage on disk. */
  readonly storage: Pick<Memento, "get" | "update">;
  /** Called when the list of an account has changed, so that VS Code asks for it again. */
  readonly onChanged: () => void;
  /** Called when a request has failed, unless the last request of the account failed with the same message. */
  readonly onFailed: (account: Account, error: unknown) => void;
}

export class ModelCache {
  private readonly options: ModelCacheOptions;
  // Lists requested since the start or the last refresh, by account.
  private readonly requests = new Map<string, Promise<ModelInfo[]>>();
  private readonly requestedAt = new Map<string, number>(); // by account
  private readonly reportedErrors = new Map<string, string>(); // by account
  private readonly timers = new Set<NodeJS.Timeout>();
  private refreshDelay = REFRESH_DELAY_MS;
  private askGateway = true;

  constructor(options: ModelCacheOptions) {
    this.options = options;
  }

  list(account: Account): Promise<ModelInfo[]> {
    const requested = this.requests.get(accountKey(account));
    if (requested) {
      this.recheck(account);
      return requested;
    }
    const stored = this.readStored(account);
    if (!stored) return this.fetchOnce(account);
    this.schedule(this.refreshDelay, () => this.fetchOnce(account));
    return Promise.resolve(stored);
  }

  /** Discards all lists; stored ones are shown until VS Code asks. Without `askGateway` the engine's copy is accepted. */
  refresh(askGateway = true): void {
    if (askGateway) this.reportedErrors.clear();
    this.askGateway = askGateway;
    this.refreshDelay = 0;
    this.requests.clear();
    this.options.onChanged();
  }

  dispose(): void {
    for (const timer of this.timers) clearTimeout(timer);
  }

  /** Lets the engine check its copy; it sends `models/changed` if the list is different. */
  private recheck(account: Account): void {
    const key = accountKey(account);
    if (Date.now() - (this.requestedAt.get(key) ?? 0) < RECHECK_INTERVAL_MS) return;
    this.requestedAt.set(key, Date.now());
    this.options.fetch(account, false).catch(() => undefined);
  }

  private fetchOnce(account: Account): Promise<ModelInfo[]> {
    const key = accountKey(account);
    const request = this.requests.get(key) ?? this.fetch(account);
    this.requests.set(key, request);
    request.catch(() => undefined); // callers of list() handle the error, if there are any
    return request;
  }

  private async fetch(account: Account): Promise<ModelInfo[]> {
    const stored = this.readStored(account);
    const key = accountKey(account);
    this.requestedAt.set(key, Date.now());
    try {
      const models = await this.options.fetch(account, this.askGateway);
      this.reportedErrors.delete(key);
      await this.options.storage.update(storageKey(account), models);
      if (stored && JSON.stringify(stored) !== JSON.stringify(models)) this.options.onChanged();
      return models;
    } catch (error) {
      this.schedule(RETRY_DELAY_MS, () => this.requests.delete(key));
      const message = String(error);
      if (this.reportedErrors.get(key) !== message) this.options.onFailed(account, error);
      this.reportedErrors.set(key, message);
      // Without a stored list, VS Code shows the error next to the account, where the user can correct it.
      if (!stored) throw error;
      return stored;
    }
  }

  private readStored(account: Account) {
    return this.options.storage.get<ModelInfo[]>(storageKey(account));
  }

  private schedule(ms: number, callback: () => unknown): void {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      callback();
    }, ms);
    this.timers.add(timer);
  }
}

/** Does not contain the API key, which must not be written to disk. */
function storageKey({ baseUrl, backend, id }: Account): string {
  return `models ${baseUrl} ${backend ?? ""} ${id ?? ""}`.trim();
}

/** Adds a random id to each account, kept in secret storage by a digest of the account: VS Code gives no name or id. */
export function createAccountIds(secrets: Pick<SecretStorage, "get" | "store">) {
  const parse = (text: string | undefined) => JSON.parse(text ?? "{}") as Record<string, string>;
  let reading: Promise<Record<string, string>> | undefined;
  return async (account: Account): Promise<Account> => {
    reading ??= Promise.resolve(secrets.get("account ids")).then(parse, () => ({}));
    const ids = await reading;
    const digest = createHash("sha256").update(accountKey(account)).digest("hex");
    if (!ids[digest]) {
      ids[digest] = randomUUID();
      await Promise.resolve(secrets.store("account ids", JSON.stringify(ids))).catch(() => undefined);
    }
    return { ...account, id: ids[digest] };
  };
}

function accountKey(account: Account): string {
  return JSON.stringify(account);
}
