// The status bar item.

import * as vscode from "vscode";
import type { ChatResult, ModelInfo, ModelTotals } from "./protocol.ts";
import { show, type Toll } from "./toll.ts";

export class StatusMeter implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  private readonly totals: () => Promise<readonly ModelTotals[]>;
  private streaming = 0;
  private toll: Toll | undefined;
  private session: readonly ModelTotals[] = [];

  constructor(command: string, totals: () => Promise<readonly ModelTotals[]>) {
    this.totals = totals;
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
    this.totals().then(
      (totals) => {
        this.session = totals;
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
