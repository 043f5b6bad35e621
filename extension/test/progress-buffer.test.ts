import assert from "node:assert/strict";
import { test } from "node:test";
import { INTERVAL_MS, ProgressBuffer } from "../src/progress-buffer.ts";
import type { Part } from "../src/protocol.ts";

class Clock {
  private time = 0;
  private timers: { at: number; callback: () => void }[] = [];
  now = () => this.time;
  after = (ms: number, callback: () => void) => {
    const timer = { at: this.time + ms, callback };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((other) => other !== timer);
    };
  };
  advance(ms: number): void {
    const end = this.time + ms;
    for (;;) {
      const next = this.timers.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.timers = this.timers.filter((timer) => timer !== next);
      this.time = next.at;
      next.callback();
    }
    this.time = end;
  }
}

function start() {
  const clock = new Clock();
  const reports: { at: number; part: Part }[] = [];
  const buffer = new ProgressBuffer((part) => reports.push({ at: clock.now(), part }), clock);
  return { clock, reports, buffer };
}

const text = (value: string): Part => ({ type: "text", value });
const call: Part = { type: "toolCall", callId: "c", name: "f", input: {} };

test("the first part is reported immediately", () => {
  const { buffer, reports } = start();
  buffer.add([text("Hel")]);
  assert.deepEqual(reports, [{ at: 0, part: text("Hel") }]);
});

test("parts that arrive 25 ms apart are merged and reported at most once per interval", () => {
  const { clock, buffer, reports } = start();
  for (let n = 0; n < 200; n++) {
    buffer.add([text(`${n} `)]);
    clock.advance(25);
  }
  buffer.flush();
  const gaps = reports.slice(1).map(({ at }, index) => at - (reports[index]?.at ?? 0));
  assert.ok(Math.min(...gaps.slice(0, -1)) >= INTERVAL_MS);
  assert.ok(Math.max(...gaps) <= INTERVAL_MS + 25);
  const reportedText = reports.map(({ part }) => (part.type === "text" ? part.value : "")).join("");
  assert.equal(reportedText, Array.from({ length: 200 }, (_, n) => `${n} `).join(""));
});

test("no part waits longer than the interval", () => {
  const { clock, buffer, reports } = start();
  buffer.add([text("a")]);
  clock.advance(1);
  buffer.add([text("b")]);
  clock.advance(INTERVAL_MS);
  assert.deepEqual(reports.map(({ at }) => at), [0, INTERVAL_MS]);
});

test("a tool call is reported immediately, after all earlier parts", () => {
  const { clock, buffer, reports } = start();
  buffer.add([text("a")]);
  clock.advance(1);
  buffer.add([text("b")]);
  buffer.add([text("c"), call]);
  assert.deepEqual(reports.slice(1), [{ at: 1, part: text("bc") }, { at: 1, part: call }]);
});

test("thinking, text and data keep their order", () => {
  const { clock, buffer, reports } = start();
  buffer.add([text("first")]);
  clock.advance(1);
  const data: Part = { type: "data", mimeType: "usage", data: "" };
  buffer.add([{ type: "thinking", value: "h" }, { type: "thinking", value: "m" }, text("a"), data, text("b")]);
  buffer.flush();
  assert.deepEqual(
    reports.slice(1).map(({ part }) => part),
    [{ type: "thinking", value: "hm" }, text("a"), data, text("b")],
  );
});

test("thinking blocks are not merged, and a signature stays in its block", () => {
  const { clock, buffer, reports } = start();
  buffer.add([text("first")]);
  clock.advance(1);
  const parts: Part[] = [
    { type: "thinking", value: "one", id: "1" },
    { type: "thinking", value: "", id: "1", metadata: { signature: "s" } },
    { type: "thinking", value: "two", id: "2" },
  ];
  buffer.add(parts);
  buffer.flush();
  assert.deepEqual(reports.slice(1).map(({ part }) => part), parts);
});

test("after the final flush no part is reported again", () => {
  const { clock, buffer, reports } = start();
  buffer.add([text("a")]);
  clock.advance(1);
  buffer.add([text("b")]);
  buffer.flush();
  clock.advance(1_000);
  buffer.flush();
  assert.equal(reports.length, 2);
});
