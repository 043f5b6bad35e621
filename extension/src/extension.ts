// Activation: registers the provider and the commands. The engine starts with the first request.

import * as vscode from "vscode";
import { BudgetPrompt } from "./budget.ts";
import { toTollbridgeError } from "./errors.ts";
import { type EngineCommand, findEngineCommands, findOnPath } from "./find-engine.ts";
import { createAccountIds, ModelCache } from "./model-cache.ts";
import type { Account, AccountCheck, ModelInfo, Settings, Usage } from "./protocol.ts";
import { Provider } from "./provider.ts";
import { Setup } from "./setup.ts";
import { Sidecar } from "./sidecar.ts";
import { UsageStatusBar } from "./status-bar.ts";
import { collectToolTexts, TokenCounter } from "./token-counter.ts";
import { VENDOR } from "./undocumented.ts";
import { createUsagePage } from "./usage-page.ts";

// Settings that select the engine; a change restarts it.
const ENGINE_SETTINGS = ["tollbridge.command", "tollbridge.interpreter"];

let activeSidecar: Sidecar | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Tollbridge", { log: true });
  const modelsChanged = new vscode.EventEmitter<void>();
  const sidecar = new Sidecar({
    findCommands: () => findCommands(context),
    initializeParams: () => ({ client: { id: "vscode", name: vscode.env.appName, version: vscode.version }, settings: readSettings(context) }),
    log,
    onModelsChanged: () => models.refresh(false),
  });
  activeSidecar = sidecar;
  const fetchUsage = () => sidecar.request<Usage>("usage", {});
  const models = new ModelCache({
    fetch: async (account, refresh) => {
      const { models } = await sidecar.request<{ models: ModelInfo[] }>("models", { account, refresh });
      void setup.offerChat();
      return models;
    },
    storage: context.globalState,
    onChanged: () => modelsChanged.fire(),
    onFailed: ({ baseUrl }, error) => {
      const url = baseUrl.replace(/\/\/.*@/, "//"); // without user name and password
      const message = `Could not load the models of ${url}. ${toTollbridgeError(error).message}`;
      void showWarning(log, message, "Set Up").then((choice) => (choice === "Set Up" ? setup.show() : undefined));
    },
  });
  const counter = new TokenCounter(
    async (model, items) => (await sidecar.request<{ counts: number[] }>("count", { model, items })).counts,
    () => collectToolTexts(vscode.lm.tools),
  );
  const statusBar = new UsageStatusBar(fetchUsage);
  const page = createUsagePage(sidecar);
  const setup = new Setup({
    check: (account) =>
      sidecar.request<AccountCheck>("checkAccount", { account }).catch((error: unknown) => {
        return { baseUrl: account.baseUrl, severity: "warning", message: toTollbridgeError(error).message };
      }),
    onAccounts: (exist) => statusBar.setAccounts(exist),
  });
  const shared = { sidecar, models, counter, budget: new BudgetPrompt(), identify: createAccountIds(context.secrets), onAccount: (account?: Account) => setup.observe(account) };
  const provider = new Provider({ ...shared, observer: statusBar, modelsChanged: modelsChanged.event });

  const commands: Record<string, () => unknown> = {
    setUp: () => setup.show(),
    refreshModels: () => models.refresh(),
    showLog: () => log.show(),
    showUsage: () => page.show(),
    recordTurns: () => toggleRecording(context),
    restart: () => {
      counter.clear();
      return sidecar.restart().then(() => vscode.window.setStatusBarMessage("Tollbridge restarted.", 3_000));
    },
  };
  context.subscriptions.push(
    ...[log, modelsChanged, models, statusBar, page, setup],
    vscode.lm.registerLanguageModelChatProvider(VENDOR, provider),
    vscode.workspace.onDidChangeConfiguration((event) => applySettings(event, sidecar)),
    ...Object.entries(commands).map(([name, run]) =>
      vscode.commands.registerCommand(`tollbridge.${name}`, () => runCommand(log, run)),
    ),
  );
  // VS Code asks a newly registered provider for models only after this event.
  modelsChanged.fire();
}

export async function deactivate(): Promise<void> {
  await activeSidecar?.dispose();
}

async function runCommand(log: vscode.LogOutputChannel, run: () => unknown): Promise<void> {
  try {
    await run();
  } catch (error) {
    await showWarning(log, toTollbridgeError(error).message);
  }
}

/** Shows a warning and not an error: an error notification with a button stays until it is dismissed. */
async function showWarning(log: vscode.LogOutputChannel, message: string, ...buttons: string[]) {
  log.error(message);
  const choice = await vscode.window.showWarningMessage(message, ...buttons, "Show Log");
  if (choice === "Show Log") log.show();
  return choice;
}

function applySettings(event: vscode.ConfigurationChangeEvent, sidecar: Sidecar): void {
  if (ENGINE_SETTINGS.some((name) => event.affectsConfiguration(name))) void sidecar.restart().catch(() => undefined);
  else if (event.affectsConfiguration("tollbridge") || event.affectsConfiguration("http.proxy")) {
    void sidecar.settingsChanged();
  }
}

function readSettings(context: vscode.ExtensionContext): Settings {
  const configuration = vscode.workspace.getConfiguration("tollbridge");
  const proxy = configuration.get<string>("proxy") || vscode.workspace.getConfiguration("http").get<string>("proxy");
  return {
    allowHttp: configuration.get<boolean>("allowHttp", false),
    budgets: configuration.get<object>("budgets", {}),
    countAtGateway: configuration.get<boolean>("countAtGateway", true),
    promptCaching: configuration.get<boolean>("promptCaching", true),
    reportCredits: configuration.get<boolean>("reportCredits", false),
    imageFolder: vscode.Uri.joinPath(context.globalStorageUri, "images").fsPath,
    embedImages: !showsLocalImages(),
    timeouts: configuration.get<Settings["timeouts"]>("timeouts", {}),
    proxy: proxy || undefined,
    record: configuration.get<string>("record") || undefined,
    recordRedact: configuration.get<boolean>("recordRedact", false),
  };
}

/** The chat shows images of local files only where the window and the extension run on the same computer. */
function showsLocalImages(): boolean {
  return vscode.env.uiKind === vscode.UIKind.Desktop && vscode.env.remoteName === undefined;
}

/** Turns recording to the extension's storage folder on or off. The engine receives the changed setting. */
async function toggleRecording(context: vscode.ExtensionContext): Promise<void> {
  const configuration = vscode.workspace.getConfiguration("tollbridge");
  const recordings = vscode.Uri.joinPath(context.globalStorageUri, "recordings").fsPath;
  const folder = configuration.get<string>("record") ? undefined : recordings;
  await configuration.update("record", folder, vscode.ConfigurationTarget.Global);
  const message = folder ? `Recording requests to ${folder} (keys excluded).` : "Recording stopped.";
  void vscode.window.showInformationMessage(message);
}

async function findCommands(context: vscode.ExtensionContext): Promise<EngineCommand[]> {
  const configuration = vscode.workspace.getConfiguration("tollbridge");
  return findEngineCommands({
    command: configuration.get<string[]>("command", []),
    interpreter: configuration.get<string>("interpreter", ""),
    bundledScript: vscode.Uri.joinPath(context.extensionUri, "bundled", "start.py").fsPath,
    pythonExtension: await pythonExtensionInterpreter(),
    findProgram: (name) => findOnPath(name),
  });
}

/** The part of the Python extension's API that is used here. */
interface PythonEnvironments {
  getActiveEnvironmentPath(): object;
  resolveEnvironment(path: object): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
}

/** Returns the interpreter selected in the Python extension; none in an untrusted workspace, which may have set it. */
async function pythonExtensionInterpreter(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<{ environments: PythonEnvironments }>("ms-python.python");
  if (!extension || !vscode.workspace.isTrusted) return undefined;
  try {
    const { environments } = await extension.activate();
    const environment = await environments.resolveEnvironment(environments.getActiveEnvironmentPath());
    return environment?.executable.uri?.fsPath;
  } catch {
    return undefined; // a failure of the Python extension must not stop the search
  }
}
