// Converts VS Code's message parts to JSON and back. The engine interprets the values.

import * as vscode from "vscode";
import type { Message, Part } from "./protocol.ts";
import { createThinking, isErrorResult, isThinking } from "./undocumented.ts";

export function encodeMessage(message: vscode.LanguageModelChatRequestMessage): Message {
  return { role: message.role, content: message.content.map(encodePart), name: message.name || undefined };
}

export function encodePart(part: unknown): Part {
  if (part instanceof vscode.LanguageModelTextPart) return { type: "text", value: part.value };
  if (isThinking(part)) return { type: "thinking", value: part.value, id: part.id, metadata: part.metadata };
  if (part instanceof vscode.LanguageModelToolCallPart) {
    return { type: "toolCall", callId: part.callId, name: part.name, input: part.input };
  }
  if (part instanceof vscode.LanguageModelToolResultPart) {
    const content = part.content.map(encodePart);
    return { type: "toolResult", callId: part.callId, content, isError: isErrorResult(part) };
  }
  if (part instanceof vscode.LanguageModelDataPart) {
    return { type: "data", mimeType: part.mimeType, data: Buffer.from(part.data).toString("base64") };
  }
  if (part instanceof vscode.LanguageModelPromptTsxPart) return { type: "promptTsx", value: part.value };
  return { type: "unknown", name: (part as object | null)?.constructor?.name ?? typeof part };
}

/** Returns undefined for a part that VS Code cannot show. */
export function decodePart(part: Part): vscode.LanguageModelResponsePart | undefined {
  switch (part.type) {
    case "text":
      return new vscode.LanguageModelTextPart(part.value);
    case "thinking":
      return createThinking(part);
    case "toolCall":
      return new vscode.LanguageModelToolCallPart(part.callId, part.name, part.input);
    case "data":
      return new vscode.LanguageModelDataPart(Buffer.from(part.data, "base64"), part.mimeType);
    default:
      return undefined;
  }
}
