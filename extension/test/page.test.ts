import assert from "node:assert/strict";
import { test } from "node:test";
import { type Report, type Totals, compareBilled, costByModel, formatCost, hitRate, hitRates, listDays, partialReasons, stack, tokensByKind } from "../page/report.ts";

const NOTHING: Totals = {
  requests: 0,
  attempts: 0,
  outcomes: {},
  usage: { input_tokens: null, output_tokens: null, total_tokens: null, cached_tokens: null },
  cacheable: null,
  incomplete: 0,
  cost: null,
  billed: null,
  computed: null,
  difference: null,
  unbilled: 0,
  unpriced: 0,
};
const totals = (cost: string | null, input = 0, cached: number | null = null, output = 0): Totals => ({
  ...NOTHING,
  cost,
  usage: { input_tokens: input, output_tokens: output, total_tokens: input + output, cached_tokens: cached },
  cacheable: cached === null ? null : input,
});
const REPORT: Report = {
  revision: "r",
  since: "2026-02-27",
  until: "2026-03-01",
  generated: 0,
  total: totals("3", 30, 10, 5),
  days: [
    { day: "2026-02-27", ...totals("1", 10, 10, 1) },
    { day: "2026-03-01", ...totals("2", 20, null, 4) },
  ],
  models: ["a", "b", "c", "d", "e", "f", "g"].map((model) => ({ model, ...totals("1") })),
  series: [
    { day: "2026-02-27", model: "a", cost: "0.1", tokens: 1 },
    { day: "2026-03-01", model: "f", cost: "0.2", tokens: 1 },
    { day: "2026-03-01", model: "g", cost: "0.3", tokens: 1 },
    { day: "2026-03-01", model: "g", cost: null, tokens: 1 },
  ],
  conversations: [],
  accuracy: [],
};

test("days without usage are listed too", () => {
  assert.deepEqual(listDays(REPORT), ["2026-02-27", "2026-02-28", "2026-03-01"]);
});

test("the cheapest of many models are one series, and few models are not joined", () => {
  const days = listDays(REPORT);
  const series = costByModel(REPORT, days);
  assert.deepEqual(series.map(({ name }) => name), ["a", "b", "c", "d", "e", "other models"]);
  assert.deepEqual(series[0]?.values, [0.1, 0, 0]);
  assert.deepEqual(series[5]?.values, [0, 0, 0.5]);
  const six = costByModel({ ...REPORT, models: REPORT.models.slice(0, 6) }, days);
  assert.deepEqual(six.map(({ name }) => name), ["a", "b", "c", "d", "e", "f"]);
});

test("stacked bars end where the bars below them begin, the first at the top", () => {
  const series = [[1, 2], [10, 20], [100, null]].map((values) => ({ name: "", values, total: null }));
  assert.deepEqual(stack(series), [[111, 22], [110, 20], [100, 0]]);
});

test("cached input is not counted twice", () => {
  const series = tokensByKind(REPORT, ["2026-02-27", "2026-03-01"]);
  assert.deepEqual(Object.fromEntries(series.map(({ name, values }) => [name, values])), { output: [1, 4], "other input": [0, 20], "cached input": [10, 0] });
});

test("a hit rate is unknown, and not zero, if no gateway reports cached tokens", () => {
  assert.equal(hitRate(totals("1", 20)), null);
  assert.equal(hitRate(totals("1", 20, 0)), 0);
  assert.deepEqual(hitRates(REPORT, listDays(REPORT)).values, [1, null, null]);
});

test("an unknown cost is a dash, and small amounts keep their digits", () => {
  assert.deepEqual([null, "0", "0.00123", "1234.5", "-0.5"].map((cost) => formatCost(cost)), ["–", "$0.00", "$0.0012", "$1,234.50", "−$0.5000"]);
});

test("partial sums say why", () => {
  assert.equal(partialReasons(NOTHING), "");
  assert.equal(partialReasons({ ...NOTHING, incomplete: 1, unpriced: 2 }), "1 attempt without reported usage, 2 attempts without a known price");
});

test("billed and computed cost are compared for the same attempts", () => {
  assert.equal(compareBilled({ ...NOTHING, cost: "1" }), "computed from listed prices");
  assert.equal(compareBilled({ ...NOTHING, billed: "1.10", difference: "0.10" }), "$1.1000 billed, 10.0 % above the computed cost");
  assert.equal(compareBilled({ ...NOTHING, billed: "1", difference: "0", unbilled: 1 }), "$1.0000 billed, as computed; 1 attempt computed");
  assert.equal(compareBilled({ ...NOTHING, billed: "1", difference: null }), "$1.0000 billed");
});
