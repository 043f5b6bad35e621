import assert from "node:assert/strict";
import { test } from "node:test";
import { Coalescer, INTERVAL_MS } from "../src/coalescer.ts";
import type { Part } from "../src/protocol.ts";

class Clock {
  private time = 0;
  private timers: { at: number; what: () => void }[] = [];
  now = () => this.time;
  after = (ms: number, what: () => void) => {
    const timer = { at: this.time + ms, what };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((other) => other !== timer);
    };
  };
  pass(ms: number): void {
    const end = this.time + ms;
    for (;;) {
      const next = this.timers.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.timers = this.timers.filter((timer) => timer !== next);
      this.time = next.at;
      next.what();
    }
    this.time = end;
  }
}

function start() {
  const clock = new Clock();
  const told: { at: number; part: Part }[] = [];
  const coalescer = new Coalescer((part) => told.push({ at: clock.now(), part }), clock);
  return { clock, told, coalescer };
}

const text = (value: string): Part => ({ type: "text", value });
const call: Part = { type: "toolCall", callId: "c", name: "f", input: {} };

test("the first word is told at once", () => {
  const { coalescer, told } = start();
  coalescer.add([text("Hel")]);
  assert.deepEqual(told, [{ at: 0, part: text("Hel") }]);
});

test("words that come 25 ms apart are told together, no more often than the interval", () => {
  const { clock, coalescer, told } = start();
  for (let n = 0; n < 200; n++) {
    coalescer.add([text(`${n} `)]);
    clock.pass(25);
  }
  coalescer.flush();
  const gaps = told.slice(1).map(({ at }, index) => at - (told[index]?.at ?? 0));
  assert.ok(Math.min(...gaps.slice(0, -1)) >= INTERVAL_MS);
  assert.ok(Math.max(...gaps) <= INTERVAL_MS + 25);
  const said = told.map(({ part }) => (part.type === "text" ? part.value : "")).join("");
  assert.equal(said, Array.from({ length: 200 }, (_, n) => `${n} `).join(""));
});

test("nothing waits longer than the interval", () => {
  const { clock, coalescer, told } = start();
  coalescer.add([text("a")]);
  clock.pass(1);
  coalescer.add([text("b")]);
  clock.pass(INTERVAL_MS);
  assert.deepEqual(told.map(({ at }) => at), [0, INTERVAL_MS]);
});

test("a tool call is told at once, after everything before it", () => {
  const { clock, coalescer, told } = start();
  coalescer.add([text("a")]);
  clock.pass(1);
  coalescer.add([text("b")]);
  coalescer.add([text("c"), call]);
  assert.deepEqual(told.slice(1), [{ at: 1, part: text("bc") }, { at: 1, part: call }]);
});

test("thinking, text and data keep their order", () => {
  const { clock, coalescer, told } = start();
  coalescer.add([text("first")]);
  clock.pass(1);
  const data: Part = { type: "data", mimeType: "usage", data: "" };
  coalescer.add([{ type: "thinking", value: "h" }, { type: "thinking", value: "m" }, text("a"), data, text("b")]);
  coalescer.flush();
  assert.deepEqual(
    told.slice(1).map(({ part }) => part),
    [{ type: "thinking", value: "hm" }, text("a"), data, text("b")],
  );
});

test("blocks of thinking do not run into each other, and a signature stays where it was", () => {
  const { clock, coalescer, told } = start();
  coalescer.add([text("first")]);
  clock.pass(1);
  const parts: Part[] = [
    { type: "thinking", value: "one", id: "1" },
    { type: "thinking", value: "", id: "1", metadata: { signature: "s" } },
    { type: "thinking", value: "two", id: "2" },
  ];
  coalescer.add(parts);
  coalescer.flush();
  assert.deepEqual(told.slice(1).map(({ part }) => part), parts);
});

test("after the end nothing is told again", () => {
  const { clock, coalescer, told } = start();
  coalescer.add([text("a")]);
  clock.pass(1);
  coalescer.add([text("b")]);
  coalescer.flush();
  clock.pass(1_000);
  coalescer.flush();
  assert.equal(told.length, 2);
});
