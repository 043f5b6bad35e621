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
  readonly formatAxis: (value: number, step: number) => string;
  readonly maximum?: number;
}

export class Chart {
  readonly root: HTMLElement;
  private readonly frame: HTMLElement;
  private readonly options: ChartOptions;
  private readonly details: HTMLDetailsElement;
  private plot: uPlot | undefined;
  private table: Table<number> | undefined;
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
    if (!this.table || !sameSeries) {
      this.table?.root.remove();
      this.table = this.createTable();
      this.details.append(this.table.root);
    }
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

  private data(): uPlot.AlignedData {
    const values = this.options.kind === "bars" ? stack(this.series) : this.series.map((series) => [...series.values]);
    return [this.days.map((day) => Date.parse(day) / 1000), ...values];
  }

  private plotOptions(): uPlot.Options {
    const { kind, format, formatAxis, maximum } = this.options;
    const text = resolveColour("--text", this.frame);
    const grid = { stroke: resolveColour("--line", this.frame), width: 1 };
    const font = `12px ${getComputedStyle(this.frame).fontFamily}`;
    const axis = { stroke: text, grid, ticks: grid, font };
    const bars = uPlot.paths.bars?.({ size: [0.8, 48] });
    const colours = this.series.map((_, index) => resolveColour(`--series-${(index % 6) + 1}`, this.frame));
    const series = this.series.map(({ name }, index): uPlot.Series => {
      const colour = colours[index] ?? text;
      return {
        label: name,
        stroke: colour,
        value: (_plot, _value, _index, day) => format(this.figure(index, day)),
        ...(kind === "bars"
          ? { fill: colour, width: 0, points: { show: false }, ...(bars ? { paths: bars } : {}) }
          : { width: 2, points: { show: true, size: 5 } }),
      };
    });
    return {
      ...this.size(),
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { markers: { width: 0, fill: (_, index) => colours[index - 1] ?? text } },
      cursor: { drag: { x: false, y: false }, y: false, points: { show: kind === "line" } },
      scales: {
        x: { time: true, range: (_, low, high) => [low - 43_200, high + 43_200] },
        y: { range: (_, __, high) => [0, maximum ?? (high > 0 ? high * 1.08 : 1)] },
      },
      axes: [
        { ...axis, values: (_, times) => times.map(formatDay), space: 64, incrs: [1, 2, 7, 14, 28, 56].map((days) => days * 86_400) },
        { ...axis, size: AXIS_WIDTH, values: (_, values) => values.map((value) => formatAxis(value, (values[1] ?? 1) - (values[0] ?? 0))) },
      ],
      series: [{ label: "Day", value: (_, time) => (time === null ? "All days" : new Date(time * 1000).toISOString().slice(0, 10)) }, ...series],
    };
  }

  /** The figure of a series in the legend: of one day, or of all while no day is selected. */
  private figure(index: number, day: number | null): number | null {
    const series = this.series[index];
    return (day === null ? series?.total : series?.values[day]) ?? null;
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

  private createTable(): Table<number> {
    return new Table<number>(this.options.title, [
      { name: "day", cell: (day) => this.days[day] ?? "" },
      ...this.series.map(({ name }, index) => ({
        name,
        numeric: true,
        cell: (day: number) => this.options.format(this.figure(index, day)),
      })),
    ]);
  }

  /** Fills the table when it is open: nobody reads the figures of a closed one. */
  private fillTable(): void {
    if (this.details.open) this.table?.show(this.days.map((_, index) => this.days.length - 1 - index));
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
