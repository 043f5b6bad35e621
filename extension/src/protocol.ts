// Types of the JSON-RPC messages between this extension and the sidecar. See docs/protocol.md.

export const PROTOCOL_VERSION = 1;

export interface Account {
  readonly id?: string; // stays the same when the editor restarts; not the key and not derived from it
  readonly baseUrl: string;
  readonly apiKey?: string;
  readonly backend?: string;
  readonly headers?: object;
}

export interface Settings {
  readonly proxy?: string | undefined;
  readonly allowHttp: boolean;
  readonly budgets?: object; // as in the settings file, in US dollars
  readonly timeouts: { readonly connect?: number; readonly idle?: number; readonly total?: number };
  readonly countAtGateway?: boolean;
  readonly promptCaching?: boolean;
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

type Count = "inputTokens" | "outputTokens" | "totalTokens" | "cachedTokens" | "reasoningTokens" | "cacheWriteTokens";
/** Unknown counts are omitted; 0 means zero. */
export type Tokens = { readonly [name in Count]?: number };

/** US dollars as decimal strings; unknown values are omitted. `charge` is what was billed, or else computed. */
export type TurnCost = { readonly [name in "charge" | "computed" | "billed" | "source" | "difference"]?: string };

export interface ChatResult {
  readonly finishReason?: string;
  readonly usage?: Tokens; // what was billed for the turn
  readonly context?: Tokens; // what the context window now contains
  readonly cost?: TurnCost;
  readonly firstSeconds?: number;
  readonly seconds?: number;
  readonly warning?: string;
  readonly cache?: { readonly missed: boolean; readonly text: string }; // what the prompt cache did
  readonly lesson?: number; // changes when cached token counts are stale
}

type ModelNames = { readonly [name in "id" | "model" | "name" | "family" | "version"]: string };
type ModelLimits = { readonly [name in "maxInputTokens" | "maxOutputTokens" | "contextWindow"]: number };
/** A LanguageModelChatInformation, with fields that VS Code's public API does not declare yet. */
export interface ModelInfo extends ModelNames, ModelLimits {
  readonly capabilities: { readonly toolCalling: boolean; readonly imageInput: boolean };
  readonly tooltip?: string;
  readonly detail?: string;
  readonly [undocumented: string]: unknown;
}

type Requests = { readonly requests: number; readonly failures: number };
/** `incomplete` is the number of attempts that may have used tokens which are not in `usage`. */
export type ModelTotals = Requests & { readonly model: string; readonly usage: Tokens; readonly incomplete?: number };

export type Usage = { readonly models: ModelTotals[] };
