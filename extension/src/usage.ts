// Formats token usage for the status bar and its tooltip. Pure functions that return text.

import type { ChatResult, ModelInfo, ModelTotals, Tokens, Usage } from "./protocol.ts";

const BAR_CELLS = 8;

export type LastAnswer = { readonly model: ModelInfo; readonly result: ChatResult };
export type Status = { readonly text: string; readonly tooltip: string; readonly warning: boolean };

export function formatStatus(lastAnswer: LastAnswer | undefined, activeRequests: number, session: Usage): Status {
  const icon = activeRequests > 0 ? "$(loading~spin)" : "$(milestone)";
  const tooltip = formatTooltip(lastAnswer, session);
  const warning = lastAnswer?.result.warning !== undefined;
  const usage = lastAnswer?.result.usage;
  if (!lastAnswer || !usage) return { text: `${icon} ${lastAnswer?.model.name ?? "Tollbridge"}`, tooltip, warning };
  const { name, contextWindow } = lastAnswer.model;
  const used = contextTokens(lastAnswer.result.context ?? usage);
  const counts = [`↑${formatShort(usage.inputTokens)}`, `↓${formatShort(usage.outputTokens)}`];
  if (usage.cachedTokens) counts.push(`⟲${formatShort(usage.cachedTokens)}`);
  if (lastAnswer.result.cost?.charge !== undefined) counts.push(formatCost(lastAnswer.result.cost.charge));
  const context = `${formatShort(used)}/${formatShort(contextWindow)} ${formatBar(used / contextWindow)}`;
  return { text: `${icon} ${name} ${context} ${counts.join(" ")}`, tooltip, warning };
}

function contextTokens(usage: Tokens): number {
  return usage.totalTokens ?? (usage.inputTokens ?? 0) + (usage.outputTokens ?? 0);
}

/** `share` is the used part of the context window, from 0 to 1. */
export function formatBar(share: number): string {
  const full = Math.min(BAR_CELLS, Math.max(share > 0 ? 1 : 0, Math.round(share * BAR_CELLS)));
  return "▰".repeat(full) + "▱".repeat(BAR_CELLS - full);
}

/** Formats 1,234 as 1.2K, and an unknown count as a dash (unknown is not zero). */
export function formatShort(count: number | undefined): string {
  if (count === undefined) return "–";
  if (count < 1_000) return String(count);
  const [scale, unit] = count < 999_500 ? [1_000, "K"] : [1_000_000, "M"];
  const scaled = count / scale;
  return `${scaled < 99.95 ? Number(scaled.toFixed(1)) : Math.round(scaled)}${unit}`;
}

function formatTooltip(lastAnswer: LastAnswer | undefined, session: Usage): string {
  const lines = ["**Tollbridge**"];
  if (lastAnswer) lines.push(...formatLastAnswer(lastAnswer));
  else lines.push("No answer yet in this window.");
  if (session.models.length > 0) lines.push("**This session**", formatTotals(session.models));
  lines.push("Click to show the usage page.");
  return lines.join("\n\n");
}

function formatLastAnswer({ model, result }: LastAnswer): string[] {
  const { usage, context = usage, warning, cache } = result;
  const warnings = [...(warning ? [`**${warning}**`] : []), ...(cache?.missed ? [cache.text] : [])];
  if (!usage || !context) return warning ? warnings : [`${model.name}: the gateway reported no usage.`];
  const used = contextTokens(context);
  const percent = ((100 * used) / model.contextWindow).toFixed(1);
  const rows = [
    `| context | ${formatNumber(used)} of ${formatNumber(model.contextWindow)} (${percent} %) |`,
    `| input | ${formatNumber(usage.inputTokens)} |`,
    `| cached | ${formatNumber(usage.cachedTokens)} |`,
    `| output | ${formatNumber(usage.outputTokens)} |`,
    `| reasoning | ${formatNumber(usage.reasoningTokens)} |`,
  ];
  if (result.cost?.charge !== undefined) rows.push(`| cost | ${formatCost(result.cost.charge)} |`);
  if (result.firstSeconds !== undefined && result.seconds !== undefined) {
    rows.push(`| time | first token ${result.firstSeconds.toFixed(2)} s, total ${result.seconds.toFixed(2)} s |`);
  }
  return [...warnings, [`| ${model.name} | last answer |`, "|:--|:--|", ...rows].join("\n")];
}

export function formatTotals(totals: readonly ModelTotals[]): string {
  const rows = totals.map(({ model, requests, failures, incomplete, usage }) => {
    const failed = failures > 0 ? ` (${failures} failed)` : "";
    const counts = [usage.inputTokens, usage.cachedTokens, usage.outputTokens, usage.reasoningTokens];
    const atLeast = incomplete ? "≥ " : ""; // some usage was not reported
    return `| ${model} | ${requests}${failed} | ${atLeast}${counts.map(formatNumber).join(` | ${atLeast}`)} |`;
  });
  const head = "| model | requests | input | cached | output | reasoning |";
  return [head, "|:--|--:|--:|--:|--:|--:|", ...rows].join("\n");
}

/** Formats US dollars with two significant digits, but no less than cents. */
export function formatCost(cost: string): string {
  const amount = Number(cost);
  const digits = amount > 0 && amount < 0.1 ? Math.min(8, 1 - Math.floor(Math.log10(amount))) : 2;
  return `$${amount.toFixed(digits)}`;
}

function formatNumber(count: number | undefined): string {
  return count === undefined ? "–" : count.toLocaleString("en-US");
}
