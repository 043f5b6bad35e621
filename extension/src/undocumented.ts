// Features of VS Code that its public API does not declare. Each may be missing or change in any version, so the
// code checks for it before use and works without it. The manifest must not request these features as proposed
// APIs (`enabledApiProposals`): such an extension cannot be published.

import * as vscode from "vscode";
import type { Account, Thinking } from "./protocol.ts";

type ThinkingPartClass = new (value: string | string[], id?: string, metadata?: Record<string, unknown>) => Thinking;

const ThinkingPart = (vscode as { LanguageModelThinkingPart?: ThinkingPartClass }).LanguageModelThinkingPart;

export function isThinking(part: unknown): part is Thinking {
  return ThinkingPart !== undefined && part instanceof ThinkingPart;
}

/** Returns undefined if VS Code has no thinking part: thinking must not be added to the text of the answer. */
export function createThinking(part: Thinking): vscode.LanguageModelResponsePart | undefined {
  return ThinkingPart && (new ThinkingPart(part.value, part.id, part.metadata) as unknown as vscode.LanguageModelResponsePart);
}

/** Returns the account, as set up in Manage Language Models, whose models VS Code requests. */
export function getAccount(options: vscode.PrepareLanguageModelChatModelOptions): Account | undefined {
  const configuration = (options as { configuration?: Record<string, unknown> }).configuration ?? {};
  const clean = (value: unknown) => (typeof value === "string" ? value.trim() : typeof value === "object" && value);
  const entries = ["baseUrl", "apiKey", "backend", "headers"].map((name) => [name, clean(configuration[name])]);
  const account = Object.fromEntries(entries.filter(([, value]) => value)) as Partial<Account>;
  return typeof account.baseUrl === "string" ? (account as Account) : undefined;
}

/** Returns the options that the user chose in the model picker, such as the thinking effort. */
export function getModelConfiguration(options: vscode.ProvideLanguageModelChatResponseOptions): Record<string, unknown> {
  return (options as { modelConfiguration?: Record<string, unknown> }).modelConfiguration ?? {};
}

export function isErrorResult(part: vscode.LanguageModelToolResultPart): boolean {
  return (part as { isError?: unknown }).isError === true;
}

/** Opens VS Code's view of models and accounts. This also activates a built-in chat that was never set up. */
export async function openModelManager(): Promise<void> {
  await vscode.commands.executeCommand("workbench.action.chat.manage");
}
