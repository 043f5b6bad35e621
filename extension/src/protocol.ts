// Types of the JSON-RPC messages between this extension and the sidecar. See docs/protocol.md.

export const PROTOCOL_VERSION = 1;

export interface Account {
  readonly id?: string; // stays the same when the editor restarts; not the key and not derived from it
  readonly baseUrl: string;
  readonly apiKey?: string;
  readonly backend?: string;
  readonly headers?: object;
}

/** What a test of an account found. `baseUrl` has the part that was missing. */
export interface AccountCheck {
  readonly baseUrl: string;
  readonly severity: "error" | "warning" | "info";
  readonly message: string;
}

export interface Settings {
  readonly proxy?: string | undefined;
  readonly allowHttp: boolean;
  readonly budgets?: object; // as in the settings file, in US dollars
  readonly timeouts: { readonly connect?: number; readonly idle?: number; readonly total?: number };
  readonly countAtGateway?: boolean;
  readonly promptCaching?: boolean;
  readonly reportCredits?: boolean;
  readonly imageFolder?: string; // where images of answers are saved
  readonly embedImages?: boolean; // the chat cannot show local files
  readonly record?: string | undefined;
  readonly recordRedact?: boolean;
}

type Metadata = Record<string, unknown>;
export type Thinking = { value: string | string[]; id?: string | undefined; metadata?: Metadata | undefined };

export type Part =
  | { readonly type: "text"; readonly value: string }
  | ({ readonly type: "thinking" } & Thinking)
  | { readonly type: "toolCall"; readonly callId: string; readonly name: string; readonly input: object }
  | { readonly type: "toolResult"; readonly callId: string; readonly content: Part[]; readonly isError?: boolean }
  | { readonly type: "data"; readonly mimeType: string; readonly data: string }
  | { readonly type: "promptTsx"; readonly value: unknown }
  | { readonly type: "unknown"; readonly name: string };

export type Message = { readonly role: number; readonly name?: string | undefined; readonly content: Part[] };

export type Tool = { readonly name: string; readonly description: string; readonly inputSchema?: object | undefined };

export interface ChatParams {
  readonly account: Account;
  readonly model: string;
  readonly messages: Message[];
  readonly tools: Tool[];
  readonly toolMode: number;
  readonly modelOptions: Readonly<Record<string, unknown>>;
  readonly modelConfiguration: Readonly<Record<string, unknown>>;
  readonly overBudget?: boolean; // send it even if it exceeds a budget
}

/** The part of the result that is used here. */
export type ChatResult = { readonly countsRevision?: number }; // changes when cached token counts are stale

type ModelNames = { readonly [name in "id" | "model" | "name" | "family" | "version"]: string };
type ModelLimits = { readonly [name in "maxInputTokens" | "maxOutputTokens" | "contextWindow"]: number };
/** A LanguageModelChatInformation, with fields that VS Code's public API does not declare yet. */
export interface ModelInfo extends ModelNames, ModelLimits {
  readonly capabilities: { readonly toolCalling: boolean; readonly imageInput: boolean };
  readonly tooltip?: string;
  readonly detail?: string;
  readonly [undocumented: string]: unknown;
}

/** Why an answer has not begun. With `update`, it is not worth a new line in the chat. */
export type Wait = { readonly state: "retry" | "answer"; readonly seconds: number; readonly text: string; readonly update?: boolean };

/** The status bar item: its text, the same for screen readers, and a tooltip in Markdown. */
export type Status = { readonly text: string; readonly label: string; readonly tooltip: string; readonly warning?: boolean };

/** The part of the usage that is used here. Earlier engines do not have it. */
export type Usage = { readonly status?: Status };
