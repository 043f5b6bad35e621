// A chart of values per day: stacked bars, or a line. uPlot draws on a canvas; the table below it has the same
// figures for screen readers and for copying.

import uPlot from "uplot";
import { Table, element } from "./dom.ts";
import { type Series, stack } from "./report.ts";

const HEIGHT = 220;
const AXIS_WIDTH = 64;

export interface ChartOptions {
  readonly title: string;
  readonly kind: "bars" | "line";
  readonly format: (value: number | null) => string;
  readonly formatAxis: (value: number) => string;
  readonly maximum?: number;
}

export class Chart {
  readonly root: HTMLElement;
  private readonly frame: HTMLElement;
  private readonly options: ChartOptions;
  private readonly details: HTMLDetailsElement;
  private plot: uPlot | undefined;
  private days: readonly string[] = [];
  private series: readonly Series[] = [];

  constructor(options: ChartOptions) {
    this.options = options;
    this.frame = element("div", { class: "chart", tabindex: 0, role: "img" });
    this.details = element("details", {}, element("summary", {}, `${options.title} as a table`));
    this.details.addEventListener("toggle", () => this.fillTable());
    this.root = element("section", {}, element("h2", {}, options.title), this.frame, this.details);
    this.frame.addEventListener("keydown", (event) => this.moveCursor(event));
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.frame);
  }

  show(days: readonly string[], series: readonly Series[]): void {
    const sameSeries = series.length === this.series.length && series.every(({ name }, index) => name === this.series[index]?.name);
    this.days = days;
    this.series = series;
    this.frame.setAttribute("aria-label", this.describe());
    if (this.plot && sameSeries) this.plot.setData(this.data());
    else this.draw();
    this.fillTable();
  }

  /** Draws the chart again, for example with the colours of another theme. */
  draw(): void {
    this.plot?.destroy();
    this.plot = undefined;
    if (this.series.length > 0 && this.days.length > 0) this.plot = new uPlot(this.plotOptions(), this.data(), this.frame);
  }

  private size(): { width: number; height: number } {
    return { width: this.frame.clientWidth || 600, height: HEIGHT };
  }

  /** Stacked series are drawn from the highest to the lowest, each in front of the one before it. */
  private data(): uPlot.AlignedData {
    const times = this.days.map((day) => Date.parse(day) / 1000);
    if (this.options.kind === "line") return [times, ...this.series.map(({ values }) => [...values])];
    return [times, ...stack(this.series).reverse()];
  }

  private drawnSeries(): readonly Series[] {
    return this.options.kind === "bars" ? this.series.toReversed() : this.series;
  }

  private plotOptions(): uPlot.Options {
    const { kind, format, formatAxis, maximum } = this.options;
    const text = resolveColour("--text", this.frame);
    const grid = { stroke: resolveColour("--line", this.frame), width: 1 };
    const font = `12px ${getComputedStyle(this.frame).fontFamily}`;
    const axis = { stroke: text, grid, ticks: grid, font };
    const bars = uPlot.paths.bars?.({ size: [0.8, 48] });
    const series = this.drawnSeries().map(({ name }, drawn): uPlot.Series => {
      const index = kind === "bars" ? this.series.length - 1 - drawn : drawn;
      const colour = resolveColour(`--series-${(index % 6) + 1}`, this.frame);
      return {
        label: name,
        stroke: colour,
        value: (_plot, _value, __, at) => format(at === null ? this.sum(index) : this.series[index]?.values[at] ?? null),
        ...(kind === "bars"
          ? { fill: colour, width: 0, points: { show: false }, ...(bars ? { paths: bars } : {}) }
          : { width: 2, points: { show: true, size: 5 } }),
      };
    });
    return {
      ...this.size(),
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      // The legend is a table below the chart, and hiding one of several stacked series would be wrong.
      legend: { live: true, markers: { width: 0, fill: (_, index) => resolveColour(`--series-${this.seriesNumber(index)}`, this.frame) } },
      cursor: { drag: { x: false, y: false }, y: false, points: { show: kind === "line" } },
      scales: {
        x: { time: true, range: (_, low, high) => [low - 43_200, high + 43_200] },
        y: { range: (_, __, high) => [0, maximum ?? (high > 0 ? high * 1.08 : 1)] },
      },
      axes: [
        { ...axis, values: (_, times) => times.map(formatDay), space: 64, incrs: [1, 2, 7, 14, 28, 56].map((days) => days * 86_400) },
        { ...axis, size: AXIS_WIDTH, values: (_, values) => values.map(formatAxis) },
      ],
      series: [{ label: "Day", value: (_, time) => (time === null ? "All days" : new Date(time * 1000).toISOString().slice(0, 10)) }, ...series],
    };
  }

  private seriesNumber(drawn: number): number {
    const index = this.options.kind === "bars" ? this.series.length - drawn : drawn - 1;
    return (index % 6) + 1;
  }

  /** The sum that the legend shows while no day is selected; a sum of shares has no meaning. */
  private sum(index: number): number | null {
    if (this.options.kind === "line") return null;
    return (this.series[index]?.values ?? []).reduce<number>((total, value) => total + (value ?? 0), 0);
  }

  private describe(): string {
    const names = this.series.map(({ name }) => name).join(", ");
    return `${this.options.title}, ${this.days.length} days: ${names}. Use the arrow keys to select a day; the table below has all figures.`;
  }

  private moveCursor(event: KeyboardEvent): void {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!this.plot || step === undefined) return;
    event.preventDefault();
    const current = this.plot.cursor.idx ?? (step > 0 ? -1 : this.days.length);
    const index = Math.max(0, Math.min(this.days.length - 1, current + step));
    const time = this.plot.data[0][index] ?? 0;
    this.plot.setCursor({ left: this.plot.valToPos(time, "x"), top: 10 });
    const figures = this.series.map(({ name, values }) => `${name} ${this.options.format(values[index] ?? null)}`);
    this.frame.setAttribute("aria-label", `${this.days[index] ?? ""}: ${figures.join(", ")}`);
  }

  /** Fills the table when it is open: nobody reads the figures of a closed one. */
  private fillTable(): void {
    if (!this.details.open) return;
    const table = new Table<number>(this.options.title, [
      { name: "day", cell: (index) => this.days[index] ?? "" },
      ...this.series.map(({ name, values }) => ({
        name,
        numeric: true,
        cell: (index: number) => this.options.format(values[index] ?? null),
      })),
    ]);
    table.show(this.days.map((_, index) => this.days.length - 1 - index));
    this.details.replaceChildren(...[...this.details.children].slice(0, 1), table.root);
  }
}

function formatDay(time: number): string {
  return new Date(time * 1000).toLocaleDateString("en-US", { month: "short", day: "numeric", timeZone: "UTC" });
}

/** Returns the colour that a CSS variable has for an element: a canvas does not understand `var()`. */
function resolveColour(variable: string, parent: HTMLElement): string {
  const probe = element("span");
  probe.style.color = `var(${variable})`;
  parent.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
