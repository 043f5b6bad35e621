// What VS Code does and its public API does not say. Everything here may be missing or change: it is looked for
// before it is used, and nothing breaks without it. An extension that asked for it by name could not be published.

import * as vscode from "vscode";
import type { Account, Thinking } from "./protocol.ts";

type ThinkingPartClass = new (value: string | string[], id?: string, metadata?: Record<string, unknown>) => Thinking;

const ThinkingPart = (vscode as { LanguageModelThinkingPart?: ThinkingPartClass }).LanguageModelThinkingPart;

export function isThinking(part: unknown): part is Thinking {
  return ThinkingPart !== undefined && part instanceof ThinkingPart;
}

/** Without the class a model's thoughts are not shown: as text they would become part of its answer. */
export function makeThinking(part: Thinking): vscode.LanguageModelResponsePart | undefined {
  return ThinkingPart && (new ThinkingPart(part.value, part.id, part.metadata) as unknown as vscode.LanguageModelResponsePart);
}

/** The account of the group that models are asked for, as set up in Manage Language Models. */
export function accountOf(options: vscode.PrepareLanguageModelChatModelOptions): Account | undefined {
  const given = (options as { configuration?: Record<string, unknown> }).configuration ?? {};
  const [baseUrl, apiKey, backend] = ["baseUrl", "apiKey", "backend"].map((name) => {
    const value = given[name];
    return typeof value === "string" ? value.trim() : "";
  });
  return baseUrl ? { baseUrl, ...(apiKey ? { apiKey } : {}), ...(backend ? { backend } : {}) } : undefined;
}

/** What the user chose beside the model's name in the chat, such as the thinking effort. */
export function modelConfigurationOf(options: vscode.ProvideLanguageModelChatResponseOptions): Record<string, unknown> {
  return (options as { modelConfiguration?: Record<string, unknown> }).modelConfiguration ?? {};
}

export function isErrorResult(part: vscode.LanguageModelToolResultPart): boolean {
  return (part as { isError?: unknown }).isError === true;
}

/** The host's own view of models and accounts. Opening it also wakes a built-in chat that was never set up. */
export async function openModelManager(): Promise<void> {
  await vscode.commands.executeCommand("workbench.action.chat.manage");
}
