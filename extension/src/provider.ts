// Implements VS Code's chat model provider by sending its requests to the sidecar.

import * as vscode from "vscode";
import type { BudgetPrompt } from "./budget.ts";
import { toTollbridgeError, TollbridgeError } from "./errors.ts";
import type { ModelCache } from "./model-cache.ts";
import { decodePart, encodeMessage } from "./parts.ts";
import { ProgressBuffer } from "./progress-buffer.ts";
import type { Account, ChatParams, ChatResult, ModelInfo, Part, Wait } from "./protocol.ts";
import type { Listener, Sidecar } from "./sidecar.ts";
import type { RequestStatus } from "./status-bar.ts";
import type { TokenCounter } from "./token-counter.ts";
import { getAccount, getModelConfiguration } from "./undocumented.ts";

// VS Code may show an error before the parts that were reported just before it. This delay lets them arrive first.
const ERROR_DELAY_MS = 60;
// The id of thinking parts that say why an answer has not begun. The engine removes them from the history.
const WAIT_ID = "tollbridge.wait";

type Information = ModelInfo & vscode.LanguageModelChatInformation;

export interface ProviderOptions {
  readonly sidecar: Sidecar;
  readonly models: ModelCache;
  readonly identify: (account: Account) => Promise<Account>;
  /** Called with each account that VS Code asks for, and without one before it asks for all. */
  readonly onAccount: (account?: Account) => void;
  readonly counter: TokenCounter;
  readonly budget: BudgetPrompt;
  /** Shows the state of requests. */
  readonly observer: { begin(name: string): RequestStatus };
  readonly modelsChanged: vscode.Event<void>;
}

export class Provider implements vscode.LanguageModelChatProvider<Information> {
  readonly onDidChangeLanguageModelChatInformation: vscode.Event<void>;
  private readonly options: ProviderOptions;
  // VS Code passes back the same objects. The account is stored apart from them because it contains the API key.
  private readonly accounts = new WeakMap<object, Account>();

  constructor(options: ProviderOptions) {
    this.options = options;
    this.onDidChangeLanguageModelChatInformation = options.modelsChanged;
  }

  /** VS Code calls this once for each account, and once more without an account. */
  async provideLanguageModelChatInformation(
    options: vscode.PrepareLanguageModelChatModelOptions,
  ): Promise<Information[]> {
    const configured = getAccount(options);
    this.options.onAccount(configured);
    if (!configured) return [];
    const account = await this.options.identify(configured);
    const models = await this.options.models.list(account).catch((error: unknown) => {
      throw toTollbridgeError(error);
    });
    return models.map((model) => {
      // The picker would show the text `pricing` instead of the description, and the same prices of `infoText` above it.
      const information = { ...model, pricing: undefined } as Information;
      this.accounts.set(information, account);
      return information;
    });
  }

  async provideLanguageModelChatResponse(
    model: Information,
    messages: readonly vscode.LanguageModelChatRequestMessage[],
    options: vscode.ProvideLanguageModelChatResponseOptions,
    progress: vscode.Progress<vscode.LanguageModelResponsePart>,
    token: vscode.CancellationToken,
  ): Promise<void> {
    const buffer = new ProgressBuffer((part) => {
      const decoded = decodePart(part);
      if (decoded) progress.report(decoded);
    });
    const { counter, observer } = this.options;
    const params = this.chatParams(model, messages, options);
    const status = observer.begin(model.name);
    const onParts = (parts: Part[]) => {
      status.wait(undefined);
      buffer.add(parts);
    };
    const onWait = (wait: Wait) => {
      status.wait(wait);
      if (!wait.update) buffer.add([{ type: "thinking", value: `${wait.text}\n\n`, id: WAIT_ID }]);
    };
    try {
      counter.invalidate((await this.send(params, token, { onParts, onWait })).countsRevision);
    } catch (error) {
      if (token.isCancellationRequested) return;
      const failure = toTollbridgeError(error);
      if (failure.countsRevision !== undefined) counter.invalidate(failure.countsRevision);
      buffer.flush();
      await new Promise((resolve) => setTimeout(resolve, ERROR_DELAY_MS));
      throw failure;
    } finally {
      buffer.flush();
      status.end();
    }
  }

  async provideTokenCount(model: Information, text: string | vscode.LanguageModelChatRequestMessage): Promise<number> {
    try {
      return await this.options.counter.count(model.model, typeof text === "string" ? text : encodeMessage(text));
    } catch (error) {
      throw toTollbridgeError(error);
    }
  }

  /** Sends a request, and again if a budget refused it and the user allows it to exceed the budget. */
  private async send(
    params: ChatParams,
    token: vscode.CancellationToken,
    listener: Listener,
  ): Promise<ChatResult> {
    const { sidecar, budget } = this.options;
    const send = () => sidecar.request<ChatResult>("chat", { ...params, overBudget: budget.allowed }, token, listener);
    try {
      return await send();
    } catch (error) {
      const failure = toTollbridgeError(error);
      if (failure.code !== "budget_exceeded") throw failure;
      const cancelled = new Promise<boolean>((resolve) => token.onCancellationRequested(() => resolve(false)));
      if (!(await Promise.race([budget.ask(failure.message), cancelled]))) throw failure;
      return send();
    }
  }

  private chatParams(
    model: Information,
    messages: readonly vscode.LanguageModelChatRequestMessage[],
    options: vscode.ProvideLanguageModelChatResponseOptions,
  ): ChatParams {
    const account = this.accounts.get(model);
    if (!account) throw new TollbridgeError("This model's account was removed. Select a model again.", "not_found");
    return {
      account,
      model: model.model,
      messages: messages.map(encodeMessage),
      tools: (options.tools ?? []).map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
      toolMode: options.toolMode,
      modelOptions: options.modelOptions ?? {},
      modelConfiguration: getModelConfiguration(options),
    };
  }
}
