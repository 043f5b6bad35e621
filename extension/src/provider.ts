// VS Code's questions, carried to the sidecar, and its answers carried back.

import * as vscode from "vscode";
import { Coalescer } from "./coalescer.ts";
import type { TokenCounter } from "./counter.ts";
import { asFailure, Failure } from "./failure.ts";
import type { Models } from "./models.ts";
import { decodePart, encodeMessage } from "./parts.ts";
import type { Account, Chat, ChatResult, ModelInfo } from "./protocol.ts";
import type { Sidecar } from "./sidecar.ts";
import { accountOf, modelConfigurationOf } from "./unofficial.ts";

// An error overtakes what was reported just before it, unless that has been delivered first.
const SETTLE_MS = 60;

type Information = ModelInfo & vscode.LanguageModelChatInformation;

export interface Meter {
  begin(model: ModelInfo): void;
  end(model: ModelInfo, result?: ChatResult): void;
}

export class Provider implements vscode.LanguageModelChatProvider<Information> {
  readonly onDidChangeLanguageModelChatInformation: vscode.Event<void>;
  private readonly sidecar: Sidecar;
  private readonly models: Models;
  private readonly counter: TokenCounter;
  private readonly meter: Meter;
  // The host gives back the very objects it was given; the key stays beside them and not in them.
  private readonly accounts = new WeakMap<object, Account>();

  constructor(sidecar: Sidecar, models: Models, counter: TokenCounter, meter: Meter, changed: vscode.Event<void>) {
    this.sidecar = sidecar;
    this.models = models;
    this.counter = counter;
    this.meter = meter;
    this.onDidChangeLanguageModelChatInformation = changed;
  }

  /** The host asks once for each account, and once more without any. */
  async provideLanguageModelChatInformation(
    options: vscode.PrepareLanguageModelChatModelOptions,
  ): Promise<Information[]> {
    const account = accountOf(options);
    if (!account) return [];
    const models = await this.models.list(account).catch((error: unknown) => {
      throw asFailure(error);
    });
    return models.map((model) => {
      const information = { ...model } as Information;
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
    const coalescer = new Coalescer((part) => {
      const decoded = decodePart(part);
      if (decoded) progress.report(decoded);
    });
    const chat = this.chat(model, messages, options);
    let result: ChatResult | undefined;
    this.meter.begin(model);
    try {
      result = await this.sidecar.request<ChatResult>("chat", chat, token, (parts) => coalescer.add(parts));
      this.counter.learned(result.lesson);
    } catch (error) {
      if (token.isCancellationRequested) return;
      const failure = asFailure(error);
      if (failure.lesson !== undefined) this.counter.learned(failure.lesson);
      if (failure.code === "context_too_long") result = { warning: failure.message };
      coalescer.flush();
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
      throw failure;
    } finally {
      coalescer.flush();
      this.meter.end(model, result);
    }
  }

  async provideTokenCount(
    model: Information,
    text: string | vscode.LanguageModelChatRequestMessage,
  ): Promise<number> {
    try {
      return await this.counter.count(model.model, typeof text === "string" ? text : encodeMessage(text));
    } catch (error) {
      throw asFailure(error);
    }
  }

  private chat(
    model: Information,
    messages: readonly vscode.LanguageModelChatRequestMessage[],
    options: vscode.ProvideLanguageModelChatResponseOptions,
  ): Chat {
    const account = this.accounts.get(model);
    if (!account) throw new Failure("This model's account is gone: pick the model again.", "not_found");
    return {
      account,
      model: model.model,
      messages: messages.map(encodeMessage),
      tools: (options.tools ?? []).map(({ name, description, inputSchema }) => ({ name, description, inputSchema })),
      toolMode: options.toolMode,
      modelOptions: options.modelOptions ?? {},
      modelConfiguration: modelConfigurationOf(options),
    };
  }
}
