// The usage page: asks for the report every few seconds and shows it. It runs in a browser, served by the local
// server, and in a webview of VS Code.

import { Chart } from "./chart.ts";
import { Table, bar, element, errorBars } from "./dom.ts";
import {
  type Accuracy,
  type Budget,
  type Miss,
  type Report,
  type Totals,
  compareBilled,
  costByModel,
  formatCost,
  formatCount,
  formatShare,
  formatShort,
  hitRate,
  hitRates,
  listDays,
  partialReasons,
  tokensByKind,
  totalTokens,
} from "./report.ts";
import { createSource } from "./source.ts";

const REFRESH_MS = 5_000;
const PERIODS = [7, 30, 90, 365];
// The longest bar is an error of 10 %.
const ERROR_LIMIT = 0.1;

/** A part of the page. It is hidden if the report has nothing for it. */
interface Section {
  readonly root: HTMLElement;
  show(report: Report): void;
}

// --- The sections ---

class Summary implements Section {
  readonly root = element("section", { class: "wide", "aria-label": "Summary" });

  show({ total }: Report): void {
    const failed = Object.entries(total.outcomes).filter(([name]) => name !== "completed");
    const { input_tokens, output_tokens } = total.usage;
    const partial = partialReasons(total);
    this.root.replaceChildren(
      element(
        "dl",
        {},
        tile("Cost", markPartial(formatCost(total.cost), total.cost !== null && partial !== ""), total.cost === null ? "no price is known" : compareBilled(total)),
        tile("Tokens", formatShort(totalTokens(total)), `${formatCount(input_tokens)} input, ${formatCount(output_tokens)} output`),
        tile("Cache hit rate", formatShare(hitRate(total)), `${formatCount(total.usage.cached_tokens)} input tokens read from the cache`),
        tile("Requests", formatCount(total.requests), failed.map(([name, count]) => `${formatCount(count)} ${name}`).join(", ") || "all completed"),
      ),
      ...(partial ? [element("p", { class: "note partial" }, `The sums are partial: ${partial}.`)] : []),
    );
  }
}

function tile(name: string, figure: string, note: string): HTMLElement {
  return element("div", {}, element("dt", {}, name), element("dd", {}, element("strong", {}, figure), note));
}

class Budgets implements Section {
  readonly root = element("section", { class: "wide" });

  show({ budgets = [] }: Report): void {
    this.root.hidden = budgets.length === 0;
    this.root.replaceChildren(element("h2", {}, "Budget"), element("dl", {}, ...budgets.map(showBudget)));
  }
}

function showBudget({ name, limit, spent, reserved, ends }: Budget): HTMLElement {
  const [amount, used] = [Number(limit), Number(spent) + Number(reserved)];
  const share = amount > 0 ? used / amount : 1;
  const meter = element("meter", { min: 0, max: amount || 1, high: 0.8 * amount, optimum: 0, value: used, "aria-label": name });
  const waiting = Number(reserved) > 0 ? `, ${formatCost(reserved)} reserved by running requests` : "";
  const text = `${formatCost(spent)} of ${formatCost(limit)} (${formatShare(share)})${waiting}${ends ? `; until ${ends}` : ""}`;
  return element("div", {}, element("dt", {}, name), element("dd", {}, meter, text));
}

/** A section with one table. */
class TableSection<Row> implements Section {
  readonly root: HTMLElement;
  private readonly table: Table<Row>;
  private readonly note: HTMLElement;
  private readonly select: (report: Report) => readonly Row[] | undefined;
  private readonly empty: string;

  /** If `select` returns `undefined`, the section is hidden. `empty` is shown instead of a table without rows. */
  constructor(title: string, empty: string, table: Table<Row>, select: (report: Report) => readonly Row[] | undefined) {
    this.table = table;
    this.select = select;
    this.empty = empty;
    this.note = element("p", { class: "note" });
    this.root = element("section", { class: "wide" }, element("h2", {}, title), table.root, this.note);
  }

  show(report: Report): void {
    const rows = this.select(report);
    this.root.hidden = rows === undefined;
    this.table.root.hidden = !rows?.length;
    this.note.textContent = rows?.length ? "" : this.empty;
    this.table.show(rows ?? []);
  }
}

const markPartial = (sum: string, partial: boolean) => (partial ? `≥ ${sum}` : sum);
const showCost = (row: Totals, rows: readonly Totals[]) => {
  const highest = Math.max(...rows.map(({ cost }) => Number(cost ?? 0)));
  const text = markPartial(formatCost(row.cost), row.cost !== null && partialReasons(row) !== "");
  return bar(highest > 0 ? Number(row.cost ?? 0) / highest : 0, text);
};
const totalsColumns = [
  { name: "requests", numeric: true, cell: (row: Totals) => formatCount(row.requests) },
  { name: "input", numeric: true, cell: (row: Totals) => formatCount(row.usage.input_tokens) },
  { name: "cache hits", numeric: true, cell: (row: Totals) => formatShare(hitRate(row)) },
  { name: "output", numeric: true, cell: (row: Totals) => formatCount(row.usage.output_tokens) },
];

function modelsSection(): Section {
  const table = new Table<Report["models"][number]>("Usage by model", [
    { name: "model", cell: ({ model }) => model },
    ...totalsColumns,
    { name: "billed", numeric: true, cell: (row) => markPartial(formatCost(row.billed), row.billed !== null && row.unbilled > 0) },
    { name: "computed", numeric: true, cell: ({ computed }) => formatCost(computed) },
    { name: "cost", numeric: true, cell: showCost },
  ]);
  return new TableSection("Models", "No requests in this period.", table, ({ models }) => models);
}

function conversationsSection(): Section {
  const table = new Table<Report["conversations"][number]>("Most expensive conversations", [
    { name: "conversation", cell: ({ conversation }) => conversation },
    { name: "last request", cell: ({ last }) => formatTime(last) },
    ...totalsColumns,
    { name: "cost", numeric: true, cell: showCost },
  ]);
  return new TableSection("Most expensive conversations", "No request says which conversation it belongs to.", table, ({ conversations }) => conversations);
}

function accuracySection(): Section {
  const table = new Table<Accuracy>("Estimated against reported prompt tokens", [
    { name: "model", cell: ({ model }) => model },
    { name: "prompts", numeric: true, cell: ({ requests }) => formatCount(requests) },
    { name: "exact", numeric: true, cell: ({ exact }) => formatCount(exact) },
    { name: "median error", numeric: true, cell: ({ median }) => formatShare(median) },
    { name: "95th percentile", numeric: true, cell: ({ p95 }) => formatShare(p95) },
    { name: "worst undercount", numeric: true, cell: ({ worst_under }) => formatShare(Math.abs(worst_under)) },
    { name: "latest errors", cell: (row) => errorBars(row.recent, ERROR_LIMIT, describeErrors(row)) },
  ]);
  return new TableSection("Estimates against reported tokens", "No estimates have been compared yet.", table, ({ accuracy }) => accuracy);
}

function describeErrors({ recent }: Accuracy): string {
  const low = recent.filter((error) => error < 0).length;
  return `The latest ${recent.length} estimates: ${low} too low, ${recent.length - low} exact or too high.`;
}

function missesSection(): Section {
  const table = new Table<Miss>("Cache misses", [
    { name: "time", cell: ({ started }) => formatTime(started) },
    { name: "model", cell: ({ model }) => model },
    { name: "reason", cell: ({ reason }) => reason },
    { name: "expected", numeric: true, cell: ({ expected }) => formatCount(expected) },
    { name: "cached", numeric: true, cell: ({ cached }) => formatCount(cached) },
    { name: "cost", numeric: true, cell: ({ cost }) => formatCost(cost) },
  ]);
  return new TableSection("Cache misses", "No prompt missed the cache.", table, ({ misses }) => misses);
}

function formatTime(seconds: number): string {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

// --- The page ---

const charts = {
  cost: new Chart({ title: "Cost per day", kind: "bars", format: formatCost, formatAxis: (value, step) => formatCost(value, Math.max(2, -Math.floor(Math.log10(step)))) }),
  tokens: new Chart({ title: "Tokens per day", kind: "bars", format: formatCount, formatAxis: formatShort }),
  hits: new Chart({ title: "Cache hit rate", kind: "line", format: formatShare, formatAxis: (value) => `${Math.round(100 * value)} %`, maximum: 1 }),
};
charts.cost.root.classList.add("wide");
const sections: readonly Section[] = [new Summary(), new Budgets()];
const tables: readonly Section[] = [modelsSection(), conversationsSection(), accuracySection(), missesSection()];

function show(report: Report): void {
  for (const section of [...sections, ...tables]) section.show(report);
  const days = listDays(report);
  charts.cost.show(days, costByModel(report, days));
  charts.tokens.show(days, tokensByKind(report, days));
  charts.hits.show(days, [hitRates(report, days)]);
  performance.mark("drawn");
}

const source = createSource();
const status = document.getElementById("status") as HTMLElement;
let days = source.savedDays ?? 30;
let revision: string | undefined;
let refreshing = false;

/** Asks for the report and shows it if it has changed. */
async function refresh(): Promise<void> {
  if (refreshing || document.visibilityState === "hidden") return;
  refreshing = true;
  const asked = days;
  try {
    const answer = await source.fetch(asked, revision);
    if ("total" in answer) show(answer);
    revision = answer.revision;
    setStatus(`Updated ${new Date().toLocaleTimeString()}`);
  } catch (error) {
    setStatus(error instanceof Error ? error.message : String(error), true);
  } finally {
    refreshing = false;
  }
  if (asked !== days) await refresh();
}

function setStatus(text: string, failed = false): void {
  status.classList.toggle("failed", failed);
  // Screen readers announce a failure, and not every refresh.
  status.setAttribute("aria-live", failed ? "polite" : "off");
  status.textContent = text;
}

function choosePeriod(count: number): void {
  days = count;
  revision = undefined;
  source.saveDays(count);
  void refresh();
}

document.getElementById("period")?.append(
  ...PERIODS.map((count) => {
    const input = element("input", { type: "radio", name: "period", value: count, checked: count === days });
    input.addEventListener("change", () => choosePeriod(count));
    return element("label", {}, input, count === 365 ? "1 year" : `${count} days`);
  }),
);
document
  .getElementById("sections")
  ?.append(...[...sections, charts.cost, charts.tokens, charts.hits, ...tables].map(({ root }) => root));

// The colours of a canvas do not follow the theme by themselves.
const redraw = () => Object.values(charts).forEach((chart) => chart.draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
document.addEventListener("visibilitychange", () => void refresh());
setInterval(() => void refresh(), REFRESH_MS);
void refresh();
