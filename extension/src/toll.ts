// The toll in words: what the status bar and its hover say. Plain text in, plain text out.

import type { Accuracy, ChatResult, ModelInfo, ModelTotals, Tokens, Usage } from "./protocol.ts";

const BAR_CELLS = 8;

export interface Toll {
  readonly model: ModelInfo;
  readonly result: ChatResult;
}

export interface Shown {
  readonly text: string;
  readonly tooltip: string;
  readonly warning: boolean;
}

/** `streaming` is how many answers are coming in. */
export function show(toll: Toll | undefined, streaming: number, session: Usage): Shown {
  const icon = streaming > 0 ? "$(loading~spin)" : "$(milestone)";
  const usage = toll?.result.usage;
  const warning = toll?.result.warning !== undefined;
  if (!toll || !usage) {
    const name = toll ? ` ${toll.model.name}` : " Tollbridge";
    return { text: icon + name, tooltip: hover(toll, session), warning };
  }
  const context = toll.result.context ?? usage;
  const used = contextUsed(context);
  const share = used / toll.model.contextWindow;
  const flow = [`↑${short(usage.inputTokens)}`, `↓${short(usage.outputTokens)}`];
  if (usage.cachedTokens) flow.push(`⟲${short(usage.cachedTokens)}`);
  const fill = `${short(used)}/${short(toll.model.contextWindow)}`;
  return {
    text: `${icon} ${toll.model.name} ${fill} ${bar(share)} ${flow.join(" ")}`,
    tooltip: hover(toll, session),
    warning,
  };
}

export function contextUsed(usage: Tokens): number {
  return usage.totalTokens ?? (usage.inputTokens ?? 0) + (usage.outputTokens ?? 0);
}

export function bar(share: number): string {
  const full = Math.min(BAR_CELLS, Math.max(share > 0 ? 1 : 0, Math.round(share * BAR_CELLS)));
  return "▰".repeat(full) + "▱".repeat(BAR_CELLS - full);
}

/** 1,234 is 1.2K. Unknown is a dash: it is not zero. */
export function short(count: number | undefined): string {
  if (count === undefined) return "–";
  if (count < 1_000) return String(count);
  const [scale, unit] = count < 999_500 ? [1_000, "K"] : [1_000_000, "M"];
  const scaled = count / scale;
  return `${scaled < 99.95 ? Number(scaled.toFixed(1)) : Math.round(scaled)}${unit}`;
}

function hover(toll: Toll | undefined, session: Usage): string {
  const lines = ["**Tollbridge**"];
  if (toll) lines.push(...lastAnswer(toll));
  else lines.push("No answer yet in this window.");
  if (session.models.length > 0) lines.push("**This session**", totalsTable(session.models));
  const measured = session.accuracy.find(({ model }) => model === toll?.model.model);
  if (measured) lines.push(accuracyLine(measured));
  lines.push("Click for the usage of this session.");
  return lines.join("\n\n");
}

function lastAnswer({ model, result }: Toll): string[] {
  const { usage, context = usage, warning } = result;
  const warned = warning ? [`**${warning}**`] : [];
  if (!usage || !context) return warning ? warned : [`${model.name}: the gateway reported no usage.`];
  const used = contextUsed(context);
  const rows = [
    `| context | ${number(used)} of ${number(model.contextWindow)} (${((100 * used) / model.contextWindow).toFixed(1)} %) |`,
    `| input | ${number(usage.inputTokens)} |`,
    `| of it cached | ${number(usage.cachedTokens)} |`,
    `| output | ${number(usage.outputTokens)} |`,
    `| of it reasoning | ${number(usage.reasoningTokens)} |`,
  ];
  if (result.firstSeconds !== undefined && result.seconds !== undefined) {
    rows.push(`| time | ${result.firstSeconds.toFixed(2)} s to the first word, ${result.seconds.toFixed(2)} s in all |`);
  }
  return [...warned, [`| ${model.name} | last answer |`, "|:--|:--|", ...rows].join("\n")];
}

export function totalsTable(totals: readonly ModelTotals[]): string {
  const rows = totals.map(({ model, requests, failures, usage }) => {
    const failed = failures > 0 ? ` (${failures} failed)` : "";
    const counts = [usage.inputTokens, usage.cachedTokens, usage.outputTokens, usage.reasoningTokens].map(number);
    return `| ${model} | ${requests}${failed} | ${counts.join(" | ")} |`;
  });
  const head = "| model | requests | input | cached | output | reasoning |";
  return [head, "|:--|--:|--:|--:|--:|--:|", ...rows].join("\n");
}

/** How far the counts told in advance were from what the gateway counted. */
export function accuracyLine({ requests, exact, median, p95, worstUnder, plainMedian, plainP95 }: Accuracy): string {
  const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
  const under = worstUnder < 0 ? `, never more than ${percent(-worstUnder)} under` : ", never under";
  const told = `Estimates of ${requests} prompts: ${exact} exact, median error ${percent(median)}, 95 % within ${percent(p95)}${under}.`;
  return `${told} Had nothing been learned: median ${percent(plainMedian)}, 95 % within ${percent(plainP95)}.`;
}

export function usagePage({ models, accuracy }: Usage): string {
  if (models.length === 0) return "# Usage since the engine started\n\nNo request yet.\n";
  const measured = accuracy.map((each) => `- ${each.model}: ${accuracyLine(each)}`);
  const lines = ["# Usage since the engine started", totalsTable(models)];
  if (measured.length > 0) lines.push("# How right the estimates were", measured.join("\n"));
  return `${lines.join("\n\n")}\n`;
}

function number(count: number | undefined): string {
  return count === undefined ? "–" : count.toLocaleString("en-US");
}
