// The document that the page shows. src/tollbridge/storage/reports.py describes it.

/** US dollars as decimal text, so that no digit is lost. */
export type Cost = string;

export interface Tokens {
  readonly input_tokens: number | null;
  readonly output_tokens: number | null;
  readonly total_tokens: number | null;
  readonly cached_tokens: number | null;
}

export interface Totals {
  readonly requests: number;
  readonly attempts: number;
  readonly outcomes: Readonly<Record<string, number>>;
  readonly usage: Tokens;
  readonly cacheable: number | null;
  readonly incomplete: number;
  readonly cost: Cost | null;
  readonly billed: Cost | null;
  readonly computed: Cost | null;
  readonly difference: Cost | null;
  readonly unbilled: number;
  readonly unpriced: number;
}

export interface Accuracy {
  readonly model: string;
  readonly requests: number;
  readonly exact: number;
  readonly median: number;
  readonly p95: number;
  readonly worst_under: number;
  readonly plain_median: number;
  readonly recent: readonly number[];
}

export interface Budget {
  readonly name: string;
  readonly limit: Cost;
  readonly spent: Cost;
  readonly reserved: Cost;
  readonly ends: string | null;
}

export interface Miss {
  readonly started: number;
  readonly model: string;
  readonly reason: string;
  readonly expected: number | null;
  readonly cached: number | null;
  readonly cost: Cost | null;
}

export interface Report {
  readonly revision: string;
  readonly since: string;
  readonly until: string;
  readonly generated: number;
  readonly total: Totals;
  readonly days: readonly ({ readonly day: string } & Totals)[];
  readonly models: readonly ({ readonly model: string } & Totals)[];
  readonly series: readonly { readonly day: string; readonly model: string; readonly cost: Cost | null; readonly tokens: number }[];
  readonly conversations: readonly ({ readonly conversation: string; readonly last: number } & Totals)[];
  readonly accuracy: readonly Accuracy[];
  readonly budgets?: readonly Budget[];
  readonly misses?: readonly Miss[];
}

/** What a request for the report returns: without the report if the revision has not changed. */
export type Answer = Report | { readonly revision: string };

const MOST_MODELS = 5;
const DAY_MS = 86_400_000;

export function totalTokens({ usage }: Totals): number {
  return usage.total_tokens ?? (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
}

/** Returns the share of the input that was read from the prompt cache; `null` if no gateway reports it. */
export function hitRate({ usage, cacheable }: Totals): number | null {
  return usage.cached_tokens === null || !cacheable ? null : usage.cached_tokens / cacheable;
}

/** Returns the names of all days of the report, also of those without usage. */
export function listDays({ since, until }: Report): string[] {
  const days: string[] = [];
  for (let time = Date.parse(since); time <= Date.parse(until); time += DAY_MS) {
    days.push(new Date(time).toISOString().slice(0, 10));
  }
  return days;
}

export interface Series {
  readonly name: string;
  readonly values: readonly (number | null)[];
  readonly total: number | null; // of all days
}

function createSeries(name: string, values: readonly number[]): Series {
  return { name, values, total: values.reduce((total, value) => total + value, 0) };
}

/** Returns the cost of each day by model: of the most expensive models, and of all others together. */
export function costByModel(report: Report, days: readonly string[]): Series[] {
  const priced = report.models.filter(({ cost }) => cost !== null).map(({ model }) => model);
  const names = priced.length > MOST_MODELS + 1 ? priced.slice(0, MOST_MODELS) : priced;
  const series = new Map(names.map((name) => [name, days.map(() => 0)]));
  if (priced.length > names.length) series.set("other models", days.map(() => 0));
  const indices = new Map(days.map((day, index) => [day, index]));
  for (const { day, model, cost } of report.series) {
    const values = series.get(model) ?? series.get("other models");
    const index = indices.get(day);
    if (values && index !== undefined && cost !== null) values[index] = (values[index] ?? 0) + Number(cost);
  }
  return [...series].map(([name, values]) => createSeries(name, values));
}

/** Returns the tokens of each day: cached input, other input, and output. */
export function tokensByKind(report: Report, days: readonly string[]): Series[] {
  const byDay = new Map(report.days.map((entry) => [entry.day, entry.usage]));
  const select = (read: (usage: Tokens) => number) =>
    days.map((day) => {
      const usage = byDay.get(day);
      return usage ? read(usage) : 0;
    });
  return [
    createSeries("output", select((usage) => usage.output_tokens ?? 0)),
    createSeries("other input", select((usage) => (usage.input_tokens ?? 0) - (usage.cached_tokens ?? 0))),
    createSeries("cached input", select((usage) => usage.cached_tokens ?? 0)),
  ];
}

/** Returns the share of each day's input that was read from the prompt cache. */
export function hitRates(report: Report, days: readonly string[]): Series {
  const byDay = new Map(report.days.map((entry) => [entry.day, hitRate(entry)]));
  return { name: "cache hit rate", values: days.map((day) => byDay.get(day) ?? null), total: hitRate(report.total) };
}

/**
 * Returns the upper ends of stacked bars: the first series is at the top. Bars are drawn in this order, each in front
 * of the one before it.
 */
export function stack(series: readonly Series[]): number[][] {
  const stacked: number[][] = [];
  for (const { values } of series.toReversed()) {
    const below = stacked[0];
    stacked.unshift(values.map((value, index) => (value ?? 0) + (below?.[index] ?? 0)));
  }
  return stacked;
}

// --- Text ---

export function formatCost(cost: Cost | number | null, digits?: number): string {
  if (cost === null) return "–";
  const amount = Number(cost);
  const shown = digits ?? (Math.abs(amount) >= 10 || amount === 0 ? 2 : 4);
  const text = Math.abs(amount).toLocaleString("en-US", { minimumFractionDigits: shown, maximumFractionDigits: shown });
  return `${amount < 0 ? "−" : ""}$${text}`;
}

export function formatCount(count: number | null): string {
  return count === null ? "–" : count.toLocaleString("en-US");
}

export function formatShort(count: number): string {
  return count.toLocaleString("en-US", { notation: "compact", maximumFractionDigits: 1 });
}

export function formatShare(share: number | null): string {
  return share === null ? "–" : `${(100 * share).toFixed(1)} %`;
}

/** Returns why a sum is partial; an empty string if it is complete. */
export function partialReasons({ incomplete, unpriced }: Totals): string {
  const reasons: string[] = [];
  if (incomplete) reasons.push(`${formatCount(incomplete)} ${incomplete === 1 ? "attempt" : "attempts"} without reported usage`);
  if (unpriced) reasons.push(`${formatCount(unpriced)} ${unpriced === 1 ? "attempt" : "attempts"} without a known price`);
  return reasons.join(", ");
}

/** Compares what gateways billed with what the listed prices give for the same attempts. */
export function compareBilled({ billed, difference, unbilled }: Totals): string {
  if (billed === null) return "computed from listed prices";
  const rest = unbilled ? `; ${formatCount(unbilled)} ${unbilled === 1 ? "attempt" : "attempts"} computed` : "";
  if (difference === null) return `${formatCost(billed)} billed${rest}`;
  const share = Number(difference) / (Number(billed) - Number(difference) || 1);
  const comparison =
    Math.abs(share) < 0.0005 ? "as computed" : `${formatShare(Math.abs(share))} ${share > 0 ? "above" : "below"} the computed cost`;
  return `${formatCost(billed)} billed, ${comparison}${rest}`;
}
