// Fewer, larger reports. The host shows what it was told 30 ms after the last report: told token by token at
// 40 tokens a second, it shows a chunk every 738 ms; told every 36 ms, it shows each of them.

import type { Part } from "./protocol.ts";

export const INTERVAL_MS = 36;

export interface Timers {
  now(): number;
  after(ms: number, what: () => void): () => void;
}

const REAL: Timers = {
  now: () => performance.now(),
  after: (ms, what) => {
    const timer = setTimeout(what, ms);
    return () => clearTimeout(timer);
  },
};

export class Coalescer {
  private readonly report: (part: Part) => void;
  private readonly timers: Timers;
  private waiting: Part[] = [];
  private reportedAt = Number.NEGATIVE_INFINITY;
  private cancelTimer: (() => void) | undefined;

  constructor(report: (part: Part) => void, timers: Timers = REAL) {
    this.report = report;
    this.timers = timers;
  }

  /** The first parts are told at once, later ones together; a tool call takes everything before it along. */
  add(parts: readonly Part[]): void {
    for (const part of parts) this.append(part);
    if (parts.some((part) => part.type === "toolCall")) return this.flush();
    const wait = this.reportedAt + INTERVAL_MS - this.timers.now();
    if (wait <= 0) return this.flush();
    this.cancelTimer ??= this.timers.after(wait, () => this.flush());
  }

  /** Tells what is left. Also the right thing to do before an error: what was said is kept. */
  flush(): void {
    this.cancelTimer?.();
    this.cancelTimer = undefined;
    const parts = this.waiting;
    if (parts.length === 0) return;
    this.waiting = [];
    this.reportedAt = this.timers.now();
    for (const part of parts) this.report(part);
  }

  private append(part: Part): void {
    const last = this.waiting.at(-1);
    const joined = last && join(last, part);
    if (joined) this.waiting[this.waiting.length - 1] = joined;
    else this.waiting.push(part);
  }
}

function join(first: Part, second: Part): Part | undefined {
  if (first.type === "text" && second.type === "text") return { type: "text", value: first.value + second.value };
  if (first.type !== "thinking" || second.type !== "thinking") return undefined;
  // Metadata ends a block of thinking and belongs to it alone.
  if (first.metadata || second.metadata || first.id !== second.id) return undefined;
  return { ...first, value: [first.value, second.value].flat().join("") };
}
