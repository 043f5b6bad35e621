// The status bar item that shows the context and the token usage of the last answer.

import * as vscode from "vscode";
import type { ChatResult, ModelInfo, Usage } from "./protocol.ts";
import { formatStatus, type LastAnswer } from "./usage.ts";

export class UsageStatusBar implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  private readonly fetchUsage: () => Promise<Usage>;
  private activeRequests = 0;
  private lastAnswer: LastAnswer | undefined;
  private session: Usage = { models: [] };

  /** `command` runs when the item is clicked. */
  constructor(command: string, fetchUsage: () => Promise<Usage>) {
    this.fetchUsage = fetchUsage;
    this.item = vscode.window.createStatusBarItem("tollbridge.usage", vscode.StatusBarAlignment.Right, 100);
    this.item.name = "Tollbridge";
    this.item.command = command;
    this.update();
    this.item.show();
  }

  /** Call when a request starts. */
  begin(model: ModelInfo): void {
    this.activeRequests += 1;
    if (this.lastAnswer?.model.id !== model.id) this.lastAnswer = { model, result: {} };
    this.update();
  }

  /** Call when a request has ended; `result` is absent if it was cancelled or failed. */
  end(model: ModelInfo, result?: ChatResult): void {
    this.activeRequests -= 1;
    if (result) this.lastAnswer = { model, result };
    this.update();
    this.fetchUsage().then(
      (session) => {
        this.session = session;
        this.update();
      },
      () => undefined, // the engine has stopped; the failed request reports that
    );
  }

  dispose(): void {
    this.item.dispose();
  }

  private update(): void {
    const status = formatStatus(this.lastAnswer, this.activeRequests, this.session);
    this.item.text = status.text;
    this.item.tooltip = new vscode.MarkdownString(status.tooltip);
    this.item.backgroundColor = status.warning ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
  }
}
