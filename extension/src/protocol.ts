// What travels between this extension and the sidecar. docs/protocol.md explains it.

export const PROTOCOL_VERSION = 1;

export interface Account {
  readonly baseUrl: string;
  readonly apiKey?: string;
}

export interface Settings {
  readonly proxy?: string;
  readonly allowHttp: boolean;
  readonly timeouts: { readonly connect?: number; readonly idle?: number; readonly total?: number };
  readonly record?: string;
  readonly recordRedact?: boolean;
}

export type Part =
  | { readonly type: "text"; readonly value: string }
  | {
      readonly type: "thinking";
      readonly value: string | string[];
      readonly id?: string;
      readonly metadata?: Record<string, unknown>;
    }
  | { readonly type: "toolCall"; readonly callId: string; readonly name: string; readonly input: object }
  | { readonly type: "toolResult"; readonly callId: string; readonly content: Part[]; readonly isError?: boolean }
  | { readonly type: "data"; readonly mimeType: string; readonly data: string }
  | { readonly type: "promptTsx"; readonly value: unknown }
  | { readonly type: "unknown"; readonly name: string };

export interface Message {
  readonly role: number;
  readonly name?: string;
  readonly content: Part[];
}

export interface Chat {
  readonly account: Account;
  readonly model: string;
  readonly messages: Message[];
  readonly tools: { readonly name: string; readonly description: string; readonly inputSchema?: object }[];
  readonly toolMode: number;
  readonly modelOptions: Readonly<Record<string, unknown>>;
  readonly modelConfiguration: Readonly<Record<string, unknown>>;
}

export interface Tokens {
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  readonly cachedTokens?: number;
  readonly reasoningTokens?: number;
}

export interface ChatResult {
  readonly finishReason?: string;
  readonly usage?: Tokens;
  readonly firstSeconds?: number;
  readonly seconds?: number;
  readonly changes?: string[];
  readonly warning?: string;
  readonly lesson?: number;
}

// A LanguageModelChatInformation as the sidecar makes it, with fields the public API does not name yet.
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
  readonly [unofficial: string]: unknown;
}

export interface ModelTotals {
  readonly model: string;
  readonly requests: number;
  readonly failures: number;
  readonly usage: Tokens;
}

export interface Accuracy {
  readonly model: string;
  readonly requests: number;
  readonly exact: number;
  readonly median: number;
  readonly p95: number;
  readonly worstUnder: number;
}

export interface Usage {
  readonly models: ModelTotals[];
  readonly accuracy: Accuracy[];
}
