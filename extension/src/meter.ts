// The status bar item.

import * as vscode from "vscode";
import type { ChatResult, ModelInfo, Usage } from "./protocol.ts";
import { show, type Toll } from "./toll.ts";

export class StatusMeter implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  private readonly usage: () => Promise<Usage>;
  private streaming = 0;
  private toll: Toll | undefined;
  private session: Usage = { models: [], accuracy: [] };

  constructor(command: string, usage: () => Promise<Usage>) {
    this.usage = usage;
    this.item = vscode.window.createStatusBarItem("tollbridge.toll", vscode.StatusBarAlignment.Right, 100);
    this.item.name = "Tollbridge";
    this.item.command = command;
    this.draw();
    this.item.show();
  }

  begin(model: ModelInfo): void {
    this.streaming += 1;
    if (this.toll?.model.id !== model.id) this.toll = { model, result: {} };
    this.draw();
  }

  end(model: ModelInfo, result?: ChatResult): void {
    this.streaming -= 1;
    if (result) this.toll = { model, result };
    this.draw();
    this.usage().then(
      (session) => {
        this.session = session;
        this.draw();
      },
      () => undefined, // the engine is gone, and says so elsewhere
    );
  }

  dispose(): void {
    this.item.dispose();
  }

  private draw(): void {
    const shown = show(this.toll, this.streaming, this.session);
    this.item.text = shown.text;
    this.item.tooltip = new vscode.MarkdownString(shown.tooltip);
    this.item.backgroundColor = shown.warning ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
  }
}
