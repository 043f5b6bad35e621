// Creates elements. Texts become text nodes: names of models come from outside and are never read as HTML.

type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;
type Child = Node | string;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const created = document.createElement(tag);
  setAttributes(created, attributes);
  created.append(...children);
  return created;
}

function setAttributes(target: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) target.setAttribute(name, value === true ? "" : String(value));
  }
}

export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row, rows: readonly Row[]) => Child;
  readonly numeric?: boolean;
}

/** A table whose rows can be replaced without losing the focus or the scroll position of the page. */
export class Table<Row> {
  readonly root: HTMLElement;
  private readonly body = element("tbody");
  private readonly columns: readonly Column<Row>[];

  constructor(caption: string, columns: readonly Column<Row>[]) {
    this.columns = columns;
    const head = element("tr", {}, ...columns.map(({ name, numeric }) => element("th", { scope: "col", class: numeric ? "number" : "" }, name)));
    const table = element("table", {}, element("caption", {}, caption), element("thead", {}, head), this.body);
    // A wide table scrolls on its own; the keyboard can scroll it when it has the focus.
    this.root = element("div", { class: "table", tabindex: 0, role: "region", "aria-label": caption }, table);
  }

  show(rows: readonly Row[]): void {
    this.body.replaceChildren(
      ...rows.map((row) =>
        element("tr", {}, ...this.columns.map(({ cell, numeric }, index) =>
          element(index === 0 ? "th" : "td", { class: numeric ? "number" : "", scope: index === 0 ? "row" : undefined }, cell(row, rows)),
        )),
      ),
    );
  }
}

/** A bar as wide as `share` of its cell, beside the number that it shows. */
export function bar(share: number, text: string): HTMLElement {
  const fill = element("span", { class: "bar", "aria-hidden": "true" });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 6}em`;
  return element("span", { class: "with-bar" }, text, fill);
}

const SVG = "http://www.w3.org/2000/svg";

/** Bars of relative errors above and below a line; `limit` is the error of the longest bar. */
export function errorBars(errors: readonly number[], limit: number, label: string): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  setAttributes(svg, { class: "errors", role: "img", "aria-label": label, viewBox: `0 -10 ${Math.max(1, errors.length) * 3} 20` });
  svg.style.width = `${errors.length * 3}px`;
  errors.forEach((error, index) => {
    const height = Math.max(0.6, Math.min(1, Math.abs(error) / limit) * 10);
    const rect = document.createElementNS(SVG, "rect");
    setAttributes(rect, { x: index * 3, y: error > 0 ? -height : 0, width: 2, height });
    svg.append(rect);
  });
  return svg;
}
