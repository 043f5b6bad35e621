// The models of each account: from memory on disk at once, from the gateway a little later.

import type { Account, ModelInfo } from "./protocol.ts";

export const REFRESH_AFTER_MS = 3_000;
// The host may ask many times a second; a gateway that failed is asked again only after this.
export const RETRY_AFTER_MS = 5_000;
// The engine is asked again whether its list is still the last; it answers at once, and looks behind.
export const AGAIN_AFTER_MS = 300_000;

export interface Memory {
  get<T>(key: string): T | undefined;
  update(key: string, value: unknown): Thenable<void>;
}

export interface Source {
  /** Who insists gets what the gateway says now, or its failure; who does not, the last list known. */
  readonly fetch: (account: Account, insist: boolean) => Promise<ModelInfo[]>;
  /** On disk. */
  readonly memory: Memory;
  /** The list of some account has changed: the host should ask again. */
  readonly changed: () => void;
  readonly failed: (account: Account, error: unknown) => void;
}

export class Models {
  private readonly source: Source;
  // What each account was told since the start, or is being told.
  private readonly fetched = new Map<string, Promise<ModelInfo[]>>();
  private readonly timers = new Set<NodeJS.Timeout>();
  private readonly failures = new Map<string, string>(); // told already
  // Not while VS Code is starting: the engine is a process of its own.
  private patience = REFRESH_AFTER_MS;
  private insist = true;
  private readonly asked = new Map<string, number>(); // when

  constructor(source: Source) {
    this.source = source;
  }

  list(account: Account): Promise<ModelInfo[]> {
    const fetched = this.fetched.get(nameOf(account));
    if (fetched) {
      this.nudge(account);
      return fetched;
    }
    const known = this.known(account);
    if (!known) return this.fetch(account);
    this.later(this.patience, () => this.fetch(account));
    return Promise.resolve(known);
  }

  /**
   * Every account is asked for anew, when the host asks; what is known is shown meanwhile. Without insisting,
   * what the engine has fetched behind is taken.
   */
  refresh(insist = true): void {
    if (insist) this.failures.clear();
    this.insist = insist;
    this.patience = 0;
    this.fetched.clear();
    this.source.changed();
  }

  dispose(): void {
    for (const timer of this.timers) clearTimeout(timer);
  }

  private nudge(account: Account): void {
    const name = nameOf(account);
    if (Date.now() - (this.asked.get(name) ?? 0) < AGAIN_AFTER_MS) return;
    this.asked.set(name, Date.now());
    this.source.fetch(account, false).catch(() => undefined);
  }

  private fetch(account: Account): Promise<ModelInfo[]> {
    const name = nameOf(account);
    const fetched = this.fetched.get(name) ?? this.ask(account);
    this.fetched.set(name, fetched);
    fetched.catch(() => undefined); // heard by those who ask, if anyone does
    return fetched;
  }

  private async ask(account: Account): Promise<ModelInfo[]> {
    const known = this.known(account);
    const name = nameOf(account);
    this.asked.set(name, Date.now());
    try {
      const models = await this.source.fetch(account, this.insist);
      this.failures.delete(name);
      await this.source.memory.update(keyOf(account), models);
      if (known && JSON.stringify(known) !== JSON.stringify(models)) this.source.changed();
      return models;
    } catch (error) {
      this.later(RETRY_AFTER_MS, () => this.fetched.delete(name));
      const said = String(error);
      if (this.failures.get(name) !== said) this.source.failed(account, error);
      this.failures.set(name, said);
      // With nothing to show, the host shows the error beside the account, where it can be mended.
      if (!known) throw error;
      return known;
    }
  }

  private known(account: Account): ModelInfo[] | undefined {
    return this.source.memory.get<ModelInfo[]>(keyOf(account));
  }

  private later(ms: number, what: () => unknown): void {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      what();
    }, ms);
    this.timers.add(timer);
  }
}

// The key leaves no trace on disk: accounts of one gateway share a list until each has been asked for.
function keyOf(account: Account): string {
  return `models ${account.baseUrl} ${account.backend ?? ""}`.trim();
}

function nameOf(account: Account): string {
  return JSON.stringify(account);
}
