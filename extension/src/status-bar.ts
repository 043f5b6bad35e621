// The status bar item. The engine writes its texts; while an answer has not begun, the item shows why.

import * as vscode from "vscode";
import type { Status, Usage, Wait } from "./protocol.ts";

/** Shows the state of one request. */
export interface RequestStatus {
  /** Call with the reason while the answer has not begun, and with undefined when it begins. */
  wait(wait: Wait | undefined): void;
  /** Call when the request has ended, however it ended. */
  end(): void;
}

export class UsageStatusBar implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  private readonly fetchUsage: () => Promise<Usage>;
  private accountsExist = true;
  private readonly active = new Map<object, (Wait & { readonly name: string }) | undefined>(); // by request
  private status: Status = { text: "Tollbridge", label: "Tollbridge", tooltip: "No answer yet in this window." };

  constructor(fetchUsage: () => Promise<Usage>) {
    this.fetchUsage = fetchUsage;
    this.item = vscode.window.createStatusBarItem("tollbridge.usage", vscode.StatusBarAlignment.Right, 100);
    this.item.name = "Tollbridge";
    this.update();
    this.item.show();
  }

  /** Without an account the item leads to the set-up. */
  setAccounts(exist: boolean): void {
    this.accountsExist = exist;
    this.update();
  }

  /** Call when a request starts, with the name of its model. */
  begin(name: string): RequestStatus {
    const request = {};
    this.active.set(request, undefined);
    this.update();
    return {
      wait: (wait) => {
        if (!wait && !this.active.get(request)) return; // called for every part of an answer
        this.active.set(request, wait && { ...wait, name });
        this.update();
      },
      end: () => {
        this.active.delete(request);
        this.update();
        void this.refresh();
      },
    };
  }

  dispose(): void {
    this.item.dispose();
  }

  private async refresh(): Promise<void> {
    const usage = await this.fetchUsage().catch(() => undefined); // the engine has stopped; the request reports that
    if (usage?.status) this.status = usage.status;
    this.update();
  }

  private update(): void {
    const { text, label, tooltip, warning } = this.status;
    const wait = [...this.active.values()].findLast((value) => value !== undefined);
    const waiting = wait && `${wait.name}: ${wait.state === "retry" ? "retry in" : "waiting"} ${wait.seconds} s`;
    const icon = this.active.size > 0 ? "$(loading~spin)" : "$(milestone)";
    const spoken = wait ? `Tollbridge: ${wait.text}` : label; // or else the Markdown is read out
    this.item.text = this.accountsExist ? `${icon} ${waiting ?? text}` : "$(milestone) Tollbridge: set up";
    this.item.accessibilityInformation = { label: this.accountsExist ? spoken : "Tollbridge: set up" };
    this.item.command = this.accountsExist ? "tollbridge.showUsage" : "tollbridge.setUp";
    this.item.tooltip = new vscode.MarkdownString(wait ? `${wait.text}\n\n${tooltip}` : tooltip);
    this.item.backgroundColor = warning ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
  }
}
