// Token counts, cached and requested in batches. One turn of the built-in agent makes 2,439 count calls; 2,094 of
// them repeat a text that was counted before.

import { createHash } from "node:crypto";
import type { Message, Tool } from "./protocol.ts";

export const CACHE_SIZE = 20_000;
// Longer texts are cached under their digest.
const MAX_KEY_LENGTH = 200;
const MESSAGE = "message";
// The agent counts lists like objects, so it also counts their indexes.
const MAX_INDEXES = 64;

type Item = string | Message;
type RequestCounts = (model: string, items: Item[]) => Promise<number[]>;
/** Returns texts that will probably be counted after the first count of a model. */
type PredictTexts = () => Iterable<string>;
type Batch = { readonly items: Item[]; readonly counts: Promise<number[]> };

export class TokenCounter {
  private readonly requestCounts: RequestCounts;
  private readonly predictTexts: PredictTexts;
  private readonly cacheSize: number;
  private readonly prefetched = new Set<string>(); // names of models
  private readonly cache = new Map<string, number | Promise<number>>();
  private countsRevision: number | undefined = 0; // the value of a newly started engine
  private readonly batches = new Map<string, Batch>(); // by model

  constructor(requestCounts: RequestCounts, predictTexts: PredictTexts = () => [], cacheSize = CACHE_SIZE) {
    this.requestCounts = requestCounts;
    this.predictTexts = predictTexts;
    this.cacheSize = cacheSize;
  }

  /** Returns the cached count, or a promise of it if the engine must be asked. */
  count(model: string, item: Item): number | Promise<number> {
    const key = cacheKey(model, item);
    const cached = this.cache.get(key);
    if (cached === undefined) {
      this.prefetch(model);
      return this.cache.get(key) ?? this.request(key, model, item);
    }
    // Move the entry to the end: the first entry of the map is the least recently used one.
    this.cache.delete(key);
    this.cache.set(key, cached);
    return cached;
  }

  /**
   * Removes the counts that a finished turn made stale: those of messages, and if the engine's `countsRevision`
   * has changed, also those of texts.
   */
  invalidate(countsRevision: number | undefined): void {
    if (countsRevision !== this.countsRevision) this.clear();
    else for (const key of this.cache.keys()) if (key.startsWith(MESSAGE)) this.cache.delete(key);
    this.countsRevision = countsRevision;
  }

  clear(): void {
    this.cache.clear();
    this.prefetched.clear();
  }

  /** Requests the predicted texts together with the first one: the agent counts texts one by one and awaits each. */
  private prefetch(model: string): void {
    if (this.prefetched.has(model)) return;
    this.prefetched.add(model);
    for (const text of this.predictTexts()) {
      const key = cacheKey(model, text);
      if (!this.cache.has(key)) this.request(key, model, text).catch(() => this.prefetched.delete(model));
    }
  }

  private request(key: string, model: string, item: Item): Promise<number> {
    const batch = this.batches.get(model) ?? this.openBatch(model);
    const index = batch.items.push(item) - 1;
    const count = batch.counts.then((counts) => counts[index] ?? 0);
    this.store(key, count);
    count.then(
      (value) => this.cache.has(key) && this.cache.set(key, value),
      () => this.cache.delete(key),
    );
    return count;
  }

  /** Opens a batch for all items that are counted in this iteration of the event loop. */
  private openBatch(model: string): Batch {
    const items: Item[] = [];
    const counts = new Promise((resolve) => setImmediate(resolve)).then(() => {
      this.batches.delete(model);
      return this.requestCounts(model, items);
    });
    const batch = { items, counts };
    this.batches.set(model, batch);
    return batch;
  }

  private store(key: string, count: Promise<number>): void {
    this.cache.set(key, count);
    if (this.cache.size <= this.cacheSize) return;
    const [oldest = ""] = this.cache.keys();
    this.cache.delete(oldest);
  }
}

function cacheKey(model: string, item: Item): string {
  const [kind, text] = typeof item === "string" ? ["text", item] : [MESSAGE, JSON.stringify(item)];
  const content = text.length <= MAX_KEY_LENGTH ? `=${text}` : createHash("sha256").update(text).digest("base64");
  return `${kind} ${model}\0${content}`;
}

/** Returns the texts that VS Code's agent counts before its first request: every key and string of every tool. */
export function collectToolTexts(tools: readonly Tool[]): Set<string> {
  const texts = new Set(Array.from({ length: MAX_INDEXES }, (_, index) => String(index)));
  for (const { name, description, inputSchema } of tools) {
    collectTexts({ name, description, parameters: inputSchema }, texts);
  }
  return texts;
}

function collectTexts(value: unknown, texts: Set<string>): void {
  if (typeof value === "string") texts.add(value);
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    if (!Array.isArray(value)) texts.add(key);
    collectTexts(inner, texts);
  }
}
