// Combines the parts of an answer into fewer, larger progress reports. VS Code renders 30 ms after the last
// report: with a report per token, at 40 tokens per second, it renders every 738 ms; with a report every 36 ms,
// it renders each report.

import type { Part } from "./protocol.ts";

export const INTERVAL_MS = 36;

export interface Timers {
  now(): number;
  /** Calls `callback` after `ms` milliseconds; the returned function cancels the timer. */
  after(ms: number, callback: () => void): () => void;
}

const SYSTEM_TIMERS: Timers = {
  now: () => performance.now(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};

export class ProgressBuffer {
  private readonly report: (part: Part) => void;
  private readonly timers: Timers;
  private pending: Part[] = [];
  private reportedAt = Number.NEGATIVE_INFINITY;
  private cancelTimer: (() => void) | undefined;

  constructor(report: (part: Part) => void, timers: Timers = SYSTEM_TIMERS) {
    this.report = report;
    this.timers = timers;
  }

  /**
   * Adds parts to the buffer. The first parts are reported immediately, later parts at most once per interval.
   * A tool call is reported immediately, after all pending parts.
   */
  add(parts: readonly Part[]): void {
    for (const part of parts) this.append(part);
    if (parts.some((part) => part.type === "toolCall")) return this.flush();
    const wait = this.reportedAt + INTERVAL_MS - this.timers.now();
    if (wait <= 0) return this.flush();
    this.cancelTimer ??= this.timers.after(wait, () => this.flush());
  }

  /** Reports all pending parts. Call it at the end of an answer, and before an error so that no part is lost. */
  flush(): void {
    this.cancelTimer?.();
    this.cancelTimer = undefined;
    const parts = this.pending;
    if (parts.length === 0) return;
    this.pending = [];
    this.reportedAt = this.timers.now();
    for (const part of parts) this.report(part);
  }

  private append(part: Part): void {
    const last = this.pending.at(-1);
    const merged = last && mergeParts(last, part);
    if (merged) this.pending[this.pending.length - 1] = merged;
    else this.pending.push(part);
  }
}

/** Returns the two parts as one, or undefined if they must stay separate. */
function mergeParts(first: Part, second: Part): Part | undefined {
  if (first.type === "text" && second.type === "text") return { type: "text", value: first.value + second.value };
  if (first.type !== "thinking" || second.type !== "thinking") return undefined;
  // Metadata ends a thinking block and belongs only to that block.
  if (first.metadata || second.metadata || first.id !== second.id) return undefined;
  return { ...first, value: [first.value, second.value].flat().join("") };
}
