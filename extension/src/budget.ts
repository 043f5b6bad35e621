// Asks the user whether requests may exceed a budget.

import * as vscode from "vscode";

const ALLOW = "Allow Over Budget Today";
const CHANGE = "Change Budget";

export class BudgetPrompt {
  private allowedUntil = 0; // milliseconds since the epoch
  private question: Promise<boolean> | undefined;

  /** Whether the user has allowed the requests of this window to exceed the budgets until midnight. */
  get allowed(): boolean {
    return Date.now() < this.allowedUntil;
  }

  /** Asks once for all requests that are refused meanwhile. Returns whether they may be sent again. */
  ask(message: string): Promise<boolean> {
    this.question ??= this.show(message).finally(() => (this.question = undefined));
    return this.question;
  }

  private async show(message: string): Promise<boolean> {
    const choice = await vscode.window.showWarningMessage(message, ALLOW, CHANGE);
    if (choice === ALLOW) this.allowedUntil = new Date().setHours(24, 0, 0, 0);
    if (choice === CHANGE) void vscode.commands.executeCommand("workbench.action.openSettings", "tollbridge.budgets");
    return choice === ALLOW;
  }
}
