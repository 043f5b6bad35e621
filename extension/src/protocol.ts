// Types of the JSON-RPC messages between this extension and the sidecar. See docs/protocol.md.

export const PROTOCOL_VERSION = 1;

export interface Account {
  readonly baseUrl: string;
  readonly apiKey?: string;
  readonly backend?: string;
  readonly headers?: object;
}

export interface Settings {
  readonly proxy?: string | undefined;
  readonly allowHttp: boolean;
  readonly timeouts: { readonly connect?: number; readonly idle?: number; readonly total?: number };
  readonly countAtGateway?: boolean;
  readonly record?: string | undefined;
  readonly recordRedact?: boolean;
}

export interface Thinking {
  readonly value: string | string[];
  readonly id?: string | undefined;
  readonly metadata?: Record<string, unknown> | undefined;
}

export type Part =
  | { readonly type: "text"; readonly value: string }
  | ({ readonly type: "thinking" } & Thinking)
  | { readonly type: "toolCall"; readonly callId: string; readonly name: string; readonly input: object }
  | { readonly type: "toolResult"; readonly callId: string; readonly content: Part[]; readonly isError?: boolean }
  | { readonly type: "data"; readonly mimeType: string; readonly data: string }
  | { readonly type: "promptTsx"; readonly value: unknown }
  | { readonly type: "unknown"; readonly name: string };

export interface Message {
  readonly role: number;
  readonly name?: string | undefined;
  readonly content: Part[];
}

export type Tool = { readonly name: string; readonly description: string; readonly inputSchema?: object | undefined };

export interface ChatParams {
  readonly account: Account;
  readonly model: string;
  readonly messages: Message[];
  readonly tools: Tool[];
  readonly toolMode: number;
  readonly modelOptions: Readonly<Record<string, unknown>>;
  readonly modelConfiguration: Readonly<Record<string, unknown>>;
}

type Count = "inputTokens" | "outputTokens" | "totalTokens" | "cachedTokens" | "reasoningTokens";
/** Unknown counts are omitted; 0 means zero. */
export type Tokens = { readonly [name in Count]?: number };

export interface ChatResult {
  readonly finishReason?: string;
  readonly usage?: Tokens; // what was billed for the turn
  readonly context?: Tokens; // what the context window now contains
  readonly firstSeconds?: number;
  readonly seconds?: number;
  readonly warning?: string;
  readonly lesson?: number; // changes when cached token counts are stale
}

/** A LanguageModelChatInformation, with fields that VS Code's public API does not declare yet. */
export interface ModelInfo {
  readonly id: string;
  readonly model: string;
  readonly name: string;
  readonly family: string;
  readonly version: string;
  readonly maxInputTokens: number;
  readonly maxOutputTokens: number;
  readonly contextWindow: number;
  readonly capabilities: { readonly toolCalling: boolean; readonly imageInput: boolean };
  readonly tooltip?: string;
  readonly detail?: string;
  readonly [undocumented: string]: unknown;
}

export interface ModelTotals {
  readonly model: string;
  readonly requests: number;
  readonly failures: number;
  readonly usage: Tokens;
}

type Figure = "requests" | "exact" | "median" | "p95" | "worstUnder" | "plainMedian" | "plainP95";
/** Errors as fractions of the reported counts; the plain ones are those without calibration. */
export type Accuracy = { readonly model: string } & { readonly [name in Figure]: number };

export interface Usage {
  readonly models: ModelTotals[];
  readonly accuracy: Accuracy[];
}
