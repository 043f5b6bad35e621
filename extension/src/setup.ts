// Leads to the first answer: an account, VS Code's chat, and the models for titles and summaries.

import { setTimeout as delay } from "node:timers/promises";
import * as vscode from "vscode";
import type { Account, AccountCheck } from "./protocol.ts";
import { addAccount, enableChat, isChatEnabled, openModelManager, takeAccount } from "./undocumented.ts";

const DEFAULT_URL = "https://ai-gateway.vercel.sh/v1";
const PROTOCOLS = [
  { backend: "openresponses", label: "OpenResponses", description: "Most servers" },
  { backend: "ai-sdk", label: "AI SDK", description: "Vercel AI Gateway only" },
  { backend: "chat-completions", label: "Chat Completions", description: "Servers without OpenResponses" },
  { backend: "anthropic-messages", label: "Anthropic Messages", description: "Anthropic and compatible gateways" },
];
const USE_IN_CHAT = "Use Your Models in Chat";
const NEVER = "Don't Ask Again";
// An account is tested when nothing was typed for this time.
const TYPING_PAUSE_MS = 500;
// The list of steps does not wait longer for the state of an account.
const CHECK_LIMIT_MS = 2_000;
// VS Code asks for models without an account first, and soon after that for those of the first account.
const NO_ACCOUNT_DELAY_MS = 3_000;

const SEVERITIES = {
  error: vscode.InputBoxValidationSeverity.Error,
  warning: vscode.InputBoxValidationSeverity.Warning,
  info: vscode.InputBoxValidationSeverity.Info,
};

type Step = vscode.QuickPickItem & { readonly run: () => unknown };

export interface SetupOptions {
  readonly check: (account: Account) => Promise<AccountCheck>;
  /** Called when VS Code asked for models: with false if it has no account. */
  readonly onAccounts: (exist: boolean) => void;
}

export class Setup implements vscode.Disposable {
  private readonly options: SetupOptions;
  private accounts: Account[] = [];
  private timer: NodeJS.Timeout | undefined;
  private offered = false;

  constructor(options: SetupOptions) {
    this.options = options;
  }

  /** Call when VS Code asks for the models of an account, and without an account when it begins to ask for all. */
  observe(account?: Account): void {
    clearTimeout(this.timer);
    if (account) {
      this.accounts.push(account);
      this.options.onAccounts(true);
      if (readChatMode() === "always" && !isChatEnabled()) void enableChat();
    } else {
      this.accounts = [];
      this.timer = setTimeout(() => this.options.onAccounts(false), NO_ACCOUNT_DELAY_MS);
    }
  }

  /** Shows what is left to do and what can be changed. */
  async show(): Promise<void> {
    const title = "Tollbridge: Set Up";
    const choice = await vscode.window.showQuickPick(this.listSteps(), { title, placeHolder: "What do you want to do?" });
    await choice?.run();
  }

  /** Offers to enable the chat: VS Code disables it until someone signs in. Call when models can be used. */
  async offerChat(): Promise<void> {
    if (this.offered || readChatMode() !== "ask" || isChatEnabled()) return;
    this.offered = true;
    const message = "VS Code's chat is not enabled. Your models can answer there and write its titles and summaries; you do not have to sign in.";
    const choice = await vscode.window.showInformationMessage(message, USE_IN_CHAT, NEVER);
    if (choice === USE_IN_CHAT) await useInChat();
    if (choice === NEVER) await vscode.workspace.getConfiguration("tollbridge").update("enableChat", "never", true);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }

  private async listSteps(): Promise<Step[]> {
    const add = { label: "$(add) Add an Account", detail: "You need the URL of a gateway and, usually, an API key.", run: () => this.editAccount() };
    const edit = this.accounts.map(async (account) => {
      const late = { message: "No answer yet.", severity: "warning" };
      const { message, severity } = await Promise.race([this.options.check(account), delay(CHECK_LIMIT_MS, late)]);
      const icon = severity === "info" ? "$(edit)" : "$(warning)";
      return { label: `${icon} Edit ${account.baseUrl}`, detail: message, run: () => this.editAccount(account) };
    });
    const chat = { label: `$(comment-discussion) ${USE_IN_CHAT}`, detail: "Enables VS Code's chat, with your models also for titles and summaries. You do not have to sign in.", run: useInChat };
    const utility = { label: "$(sparkle) Use Your Models for Titles and Summaries", detail: "VS Code uses Copilot for them, which needs a sign-in.", run: setUtilityModels };
    const manage = { label: "$(gear) Manage Language Models", detail: "VS Code's list of all models and accounts.", run: openModelManager };
    const missing = [...(isChatEnabled() ? [] : [chat]), ...(hasUtilityModels() ? [] : [utility])];
    return [add, ...(await Promise.all(edit)), ...missing, manage];
  }

  /** Asks for an account step by step and tests the answers. Replaces `old`, if given, and keeps its name. */
  private async editAccount(old?: Account): Promise<void> {
    let baseUrl = old?.baseUrl ?? DEFAULT_URL;
    const title = (step: number, name: string) => `${old ? "Edit the" : "Add an"} Account (${step}/${old ? 3 : 4}): ${name}`;
    const ask = (step: number, name: string, options: vscode.InputBoxOptions, account?: (text: string) => Account) =>
      vscode.window.showInputBox({
        ...options,
        title: title(step, name),
        ignoreFocusOut: true,
        ...(account && { validateInput: this.createValidator(account, (url) => (baseUrl = url)) }),
      });
    const urlPrompt = "The address of the gateway's API, as its documentation says; it usually ends in /v1.";
    const url = await ask(1, "URL", { prompt: urlPrompt, value: baseUrl }, (text) => ({ baseUrl: text }));
    if (!url) return;
    const keyPrompt = "From the gateway's website. VS Code stores it as a secret. Leave it empty if the server needs none.";
    const keyOptions = { prompt: keyPrompt, value: old?.apiKey ?? "", password: true };
    const apiKey = await ask(2, "API key", keyOptions, (text) => ({ baseUrl, ...(text && { apiKey: text }) }));
    if (apiKey === undefined) return;
    const options = { title: title(3, "protocol"), placeHolder: "The first one, if you are not sure", ignoreFocusOut: true };
    const protocol = await vscode.window.showQuickPick(PROTOCOLS, options);
    if (!protocol) return;
    const host = vscode.Uri.parse(baseUrl).authority;
    const name = old ? host : await ask(4, "name", { prompt: "The name of the account in the list of models.", value: host });
    if (!name) return;
    const taken = old && (await takeAccount(old));
    if (old && !taken) return openModelManager();
    const group = { name, ...taken?.group, baseUrl, backend: protocol.backend };
    try {
      await addAccount(apiKey.trim() ? { ...group, apiKey: apiKey.trim() } : group);
    } catch (error) {
      await taken?.restore();
      throw error;
    }
  }

  /** Returns a function that tests an account after a pause in typing. An error, unlike a warning, must be corrected. */
  private createValidator(account: (text: string) => Account, onUrl: (baseUrl: string) => unknown) {
    let calls = 0;
    return async (text: string): Promise<vscode.InputBoxValidationMessage | undefined> => {
      const call = ++calls;
      await delay(TYPING_PAUSE_MS);
      if (call !== calls) return undefined;
      const { baseUrl, message, severity } = await this.options.check(account(text.trim()));
      if (call !== calls) return undefined;
      onUrl(baseUrl);
      return { message, severity: SEVERITIES[severity] };
    };
  }
}

function readChatMode(): string {
  const configuration = vscode.workspace.getConfiguration();
  if (configuration.get<boolean>("chat.disableAIFeatures")) return "never";
  return configuration.get<string>("tollbridge.enableChat", "ask");
}

/** Enabling the chat comes last: it restarts the extensions. */
async function useInChat(): Promise<void> {
  if (!hasUtilityModels()) await setUtilityModels();
  await vscode.commands.executeCommand("workbench.action.chat.open");
  await openModelManager();
}

function hasUtilityModels(): boolean {
  return vscode.workspace.getConfiguration("chat").get("byokUtilityModelDefault") !== "copilot";
}

function setUtilityModels(): Thenable<void> {
  return vscode.workspace.getConfiguration("chat").update("byokUtilityModelDefault", "mainAgent", true);
}
