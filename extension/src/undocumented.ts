// Features of VS Code that its public API does not declare. Each may be missing or change in any version, so the
// code checks for it before use and works without it. The manifest must not request these features as proposed
// APIs (`enabledApiProposals`): such an extension cannot be published.

import * as vscode from "vscode";
import type { Account, Thinking } from "./protocol.ts";

export const VENDOR = "tollbridge";

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

/** Opens VS Code's list of models and accounts. If the chat is disabled, this enables it and restarts the extensions. */
export async function openModelManager(): Promise<void> {
  await vscode.commands.executeCommand("workbench.action.chat.manage");
}

/** The extension that contains the chat. VS Code includes it, but disables it until someone signs in to GitHub. */
const CHAT_EXTENSION = "GitHub.copilot-chat";

export function isChatEnabled(): boolean {
  return vscode.extensions.getExtension(CHAT_EXTENSION) !== undefined;
}

/**
 * Enables the chat without signing in. It then works with all accounts of *Manage Language Models*.
 *
 * Works while VS Code starts. Later, the extensions must be restarted, which `openModelManager` does.
 */
export async function enableChat(): Promise<void> {
  await vscode.commands.executeCommand("workbench.extensions.installExtension", CHAT_EXTENSION, { enable: true });
}

type Group = { readonly name: string; readonly vendor: string; readonly [property: string]: unknown };

/** Adds an account to *Manage Language Models*, which stores its key as a secret. */
export async function addAccount(group: Omit<Group, "vendor">): Promise<void> {
  await vscode.commands.executeCommand("lm.addLanguageModelsProviderGroup", { ...group, vendor: VENDOR });
}

/** An account that was removed from the file of *Manage Language Models*. VS Code keeps its key. */
export interface TakenAccount {
  /** The account without its key. */
  readonly group: Group;
  /** Writes it to the file again, with the reference to its key. */
  readonly restore: () => Promise<unknown>;
}

/** Removes an account from the file of *Manage Language Models*, for which there is no command. */
export async function takeAccount({ baseUrl, backend }: Account): Promise<TakenAccount | undefined> {
  await vscode.commands.executeCommand("workbench.action.openLanguageModelsJson");
  const document = vscode.window.activeTextEditor?.document;
  if (!document?.fileName.endsWith("chatLanguageModels.json")) return undefined;
  const groups = readGroups(document);
  const matches = groups.filter((group) => group.vendor === VENDOR && group["baseUrl"] === baseUrl && (group["backend"] ?? backend) === backend);
  const names = matches.map(({ name }) => name);
  const name = names.length > 1 ? await vscode.window.showQuickPick(names, { placeHolder: "Which account?" }) : names[0];
  const group = matches.find((match) => match.name === name);
  if (group) await writeGroups(document, groups.filter((other) => other !== group));
  await vscode.commands.executeCommand("workbench.action.closeActiveEditor");
  const restore = async (account: Group) => {
    const current = await vscode.workspace.openTextDocument(document.uri);
    await writeGroups(current, [...readGroups(current), account]);
  };
  return group && { group: { ...group, apiKey: undefined }, restore: () => restore(group) };
}

function readGroups(document: vscode.TextDocument): Group[] {
  return JSON.parse(document.getText()) as Group[];
}

async function writeGroups(document: vscode.TextDocument, groups: readonly Group[]): Promise<void> {
  const edit = new vscode.WorkspaceEdit();
  edit.replace(document.uri, new vscode.Range(0, 0, document.lineCount, 0), JSON.stringify(groups, undefined, "\t"));
  await vscode.workspace.applyEdit(edit);
  await document.save();
}
