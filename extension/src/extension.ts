// What happens when VS Code starts: little. The engine is started when it is first needed.

import * as vscode from "vscode";
import { candidates, type Candidate, findOnPath } from "./candidates.ts";
import { TokenCounter } from "./counter.ts";
import { asFailure } from "./failure.ts";
import { StatusMeter } from "./meter.ts";
import { Models } from "./models.ts";
import type { ModelInfo, Settings, Usage } from "./protocol.ts";
import { Provider } from "./provider.ts";
import { textsOf } from "./schema.ts";
import { Sidecar } from "./sidecar.ts";
import { usagePage } from "./toll.ts";
import { openModelManager } from "./unofficial.ts";

const VENDOR = "tollbridge";
// Settings that name the program itself.
const PROGRAM = ["tollbridge.command", "tollbridge.interpreter"];

let sidecar: Sidecar | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Tollbridge", { log: true });
  const changed = new vscode.EventEmitter<void>();
  const engine = new Sidecar({
    candidates: () => findCandidates(context),
    greeting: () => ({ client: { name: vscode.env.appName, version: vscode.version }, settings: readSettings() }),
    log,
    modelsChanged: () => models.refresh(false),
  });
  sidecar = engine;
  const usage = () => engine.request<Usage>("usage", {});
  const models = new Models({
    fetch: async (account, refresh) =>
      (await engine.request<{ models: ModelInfo[] }>("models", { account, refresh })).models,
    memory: context.globalState,
    changed: () => changed.fire(),
    failed: ({ baseUrl }, error) =>
      void tell(log, `Tollbridge could not list the models of ${baseUrl.replace(/\/\/.*@/, "//")}. ${asFailure(error).message}`),
  });
  const counter = new TokenCounter(
    async (model, items) => (await engine.request<{ counts: number[] }>("count", { model, items })).counts,
    () => textsOf(vscode.lm.tools),
  );
  const meter = new StatusMeter("tollbridge.showUsage", usage);
  const page = new UsagePage();
  const provider = new Provider(engine, models, counter, meter, changed.event);

  const commands: Record<string, () => unknown> = {
    setUp: openModelManager,
    refreshModels: () => models.refresh(),
    showLog: () => log.show(),
    showUsage: async () => page.show(await usage()),
    recordTurns: () => toggleRecording(context),
    restart: async () => {
      counter.forget();
      await engine.restart();
      vscode.window.setStatusBarMessage("Tollbridge's engine was started anew.", 3_000);
    },
  };
  context.subscriptions.push(
    log,
    changed,
    models,
    meter,
    vscode.lm.registerLanguageModelChatProvider(VENDOR, provider),
    vscode.workspace.registerTextDocumentContentProvider("tollbridge", page),
    vscode.workspace.onDidChangeConfiguration((event) => applySettings(event, engine)),
    ...Object.entries(commands).map(([name, run]) =>
      vscode.commands.registerCommand(`tollbridge.${name}`, () => runCommand(log, run)),
    ),
  );
  // Registered, and yet the host asks for no models until it is told that there are some.
  changed.fire();
}

export async function deactivate(): Promise<void> {
  await sidecar?.dispose();
}

async function runCommand(log: vscode.LogOutputChannel, run: () => unknown): Promise<void> {
  try {
    await run();
  } catch (error) {
    await tell(log, asFailure(error).message);
  }
}

/** A warning, since an error with a button stays until it is clicked away. */
async function tell(log: vscode.LogOutputChannel, sentence: string): Promise<void> {
  log.error(sentence);
  const chosen = await vscode.window.showWarningMessage(sentence, "Show Log");
  if (chosen) log.show();
}

function applySettings(event: vscode.ConfigurationChangeEvent, engine: Sidecar): void {
  if (PROGRAM.some((name) => event.affectsConfiguration(name))) void engine.restart().catch(() => undefined);
  else if (event.affectsConfiguration("tollbridge") || event.affectsConfiguration("http.proxy")) {
    void engine.settingsChanged();
  }
}

function readSettings(): Settings {
  const ours = vscode.workspace.getConfiguration("tollbridge");
  const proxy = ours.get<string>("proxy") || vscode.workspace.getConfiguration("http").get<string>("proxy");
  return {
    allowHttp: ours.get<boolean>("allowHttp", false),
    countAtGateway: ours.get<boolean>("countAtGateway", true),
    timeouts: ours.get<Settings["timeouts"]>("timeouts", {}),
    proxy: proxy || undefined,
    record: ours.get<string>("record") || undefined,
    recordRedact: ours.get<boolean>("recordRedact", false),
  };
}

/** Recording on, into the extension's own folder, or off again; the engine is told by the setting. */
async function toggleRecording(context: vscode.ExtensionContext): Promise<void> {
  const ours = vscode.workspace.getConfiguration("tollbridge");
  const place = vscode.Uri.joinPath(context.globalStorageUri, "recordings").fsPath;
  const folder = ours.get<string>("record") ? undefined : place;
  await ours.update("record", folder, vscode.ConfigurationTarget.Global);
  const told = folder ? `Tollbridge records every turn in ${folder}, without keys.` : "Tollbridge no longer records turns.";
  void vscode.window.showInformationMessage(told);
}

async function findCandidates(context: vscode.ExtensionContext): Promise<Candidate[]> {
  const ours = vscode.workspace.getConfiguration("tollbridge");
  return candidates({
    command: ours.get<string[]>("command", []),
    interpreter: ours.get<string>("interpreter", ""),
    bundled: vscode.Uri.joinPath(context.extensionUri, "bundled", "start.py").fsPath,
    pythonExtension: await pythonExtensionInterpreter(),
    find: (name) => findOnPath(name),
  });
}

/** What the Python extension has chosen, unless the workspace, which may have chosen for it, is not trusted. */
async function pythonExtensionInterpreter(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension("ms-python.python");
  if (!extension || !vscode.workspace.isTrusted) return undefined;
  try {
    const { environments } = await extension.activate();
    return (await environments.resolveEnvironment(environments.getActiveEnvironmentPath()))?.executable.uri?.fsPath;
  } catch {
    return undefined; // another extension's trouble is not ours
  }
}

/** A page of its own, which nobody is asked to save. */
class UsagePage implements vscode.TextDocumentContentProvider {
  static readonly uri = vscode.Uri.parse("tollbridge:Usage.md");
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private text = "";

  provideTextDocumentContent(): string {
    return this.text;
  }

  async show(usage: Usage): Promise<void> {
    this.text = usagePage(usage);
    this.changed.fire(UsagePage.uri);
    await vscode.commands.executeCommand("markdown.showPreview", UsagePage.uri);
  }
}
