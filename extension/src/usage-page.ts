// Shows the usage page in a webview. The engine provides the page and the figures that it asks for.

import * as vscode from "vscode";
import { toTollbridgeError } from "./errors.ts";
import type { Sidecar } from "./sidecar.ts";

export type UsagePage = vscode.Disposable & { readonly show: () => Promise<void> };

export function createUsagePage(sidecar: Sidecar): UsagePage {
  let panel: vscode.WebviewPanel | undefined;

  const show = async () => {
    if (panel) return panel.reveal();
    const { html } = await sidecar.request<{ html: string }>("usagePage", {});
    panel = vscode.window.createWebviewPanel("tollbridge.usage", "Tollbridge Usage", vscode.ViewColumn.Active, { enableScripts: true, localResourceRoots: [] });
    panel.onDidDispose(() => (panel = undefined));
    panel.webview.onDidReceiveMessage(answer);
    panel.webview.html = html;
  };

  /** Answers the page, which asks every few seconds while it is visible. */
  const answer = async (params: object) => {
    const message = await sidecar.request<object>("usageReport", params).then(
      (report) => ({ answer: report }),
      (error: unknown) => ({ error: toTollbridgeError(error).message }),
    );
    await panel?.webview.postMessage(message);
  };

  return { show, dispose: () => void panel?.dispose() };
}
