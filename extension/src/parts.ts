// VS Code's objects to JSON and back. What the bytes and values mean is decided on the other side.

import * as vscode from "vscode";
import type { Message, Part } from "./protocol.ts";
import { isErrorResult, isThinking, makeThinking } from "./unofficial.ts";

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

/** Nothing for a part the host has no word for. */
export function decodePart(part: Part): vscode.LanguageModelResponsePart | undefined {
  switch (part.type) {
    case "text":
      return new vscode.LanguageModelTextPart(part.value);
    case "thinking":
      return makeThinking(part);
    case "toolCall":
      return new vscode.LanguageModelToolCallPart(part.callId, part.name, part.input);
    case "data":
      return new vscode.LanguageModelDataPart(Buffer.from(part.data, "base64"), part.mimeType);
    default:
      return undefined;
  }
}
