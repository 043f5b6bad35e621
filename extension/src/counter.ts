// Token counts. One turn of the built-in agent asks 2,439 times, 2,094 of them for a text it asked for before.

import { createHash } from "node:crypto";
import type { Message } from "./protocol.ts";

export const REMEMBERED = 20_000;
// Longer texts are remembered by their digest.
const KEY_LENGTH = 200;
const MESSAGE = "message";

type Item = string | Message;
type Ask = (model: string, items: Item[]) => Promise<number[]>;
/** Texts that will be asked for once any is. */
type Foresee = () => Iterable<string>;
type Waiting = { readonly items: Item[]; readonly counts: Promise<number[]> };

export class TokenCounter {
  private readonly ask: Ask;
  private readonly foresee: Foresee;
  private readonly limit: number;
  private readonly foreseen = new Set<string>(); // by model
  private readonly known = new Map<string, number | Promise<number>>();
  private lesson: number | undefined = 0; // as in an engine that has just started
  private readonly waiting = new Map<string, Waiting>();

  constructor(ask: Ask, foresee: Foresee = () => [], limit = REMEMBERED) {
    this.ask = ask;
    this.foresee = foresee;
    this.limit = limit;
  }

  count(model: string, item: Item): number | Promise<number> {
    const key = keyOf(model, item);
    const found = this.known.get(key);
    if (found === undefined) {
      this.lookAhead(model);
      return this.known.get(key) ?? this.miss(key, model, item);
    }
    // The least recently used is the first in the map.
    this.known.delete(key);
    this.known.set(key, found);
    return found;
  }

  /** After a turn, messages may count otherwise; texts only if the engine has learned something of them. */
  learned(lesson: number | undefined): void {
    if (lesson !== this.lesson) this.forget();
    else for (const key of this.known.keys()) if (key.startsWith(MESSAGE)) this.known.delete(key);
    this.lesson = lesson;
  }

  forget(): void {
    this.known.clear();
    this.foreseen.clear();
  }

  /** The agent asks for one text after the other and waits each time: what it will ask for goes along. */
  private lookAhead(model: string): void {
    if (this.foreseen.has(model)) return;
    this.foreseen.add(model);
    for (const text of this.foresee()) {
      const key = keyOf(model, text);
      if (!this.known.has(key)) this.miss(key, model, text).catch(() => this.foreseen.delete(model));
    }
  }

  private miss(key: string, model: string, item: Item): Promise<number> {
    const batch = this.waiting.get(model) ?? this.open(model);
    const index = batch.items.push(item) - 1;
    const count = batch.counts.then((counts) => counts[index] ?? 0);
    this.remember(key, count);
    count.then(
      (value) => this.known.has(key) && this.known.set(key, value),
      () => this.known.delete(key),
    );
    return count;
  }

  /** Everything asked for in this turn of the event loop goes to the sidecar in one call. */
  private open(model: string): Waiting {
    const items: Item[] = [];
    const counts = new Promise((resolve) => setImmediate(resolve)).then(() => {
      this.waiting.delete(model);
      return this.ask(model, items);
    });
    const batch = { items, counts };
    this.waiting.set(model, batch);
    return batch;
  }

  private remember(key: string, count: Promise<number>): void {
    this.known.set(key, count);
    if (this.known.size <= this.limit) return;
    const [oldest = ""] = this.known.keys();
    this.known.delete(oldest);
  }
}

function keyOf(model: string, item: Item): string {
  const [kind, text] = typeof item === "string" ? ["text", item] : [MESSAGE, JSON.stringify(item)];
  const short = text.length <= KEY_LENGTH ? `=${text}` : createHash("sha256").update(text).digest("base64");
  return `${kind} ${model}\0${short}`;
}
