// Errors with messages for users.

import { ResponseError } from "vscode-jsonrpc/node";

/** An error without a stack: VS Code shows the stack of every error that has one. */
export class TollbridgeError extends Error {
  readonly code: string;
  /** The `countsRevision` of the engine after the failed request, if it sent one. */
  readonly countsRevision: number | undefined;

  constructor(message: string, code: string, countsRevision?: number) {
    super(message);
    this.name = "Tollbridge";
    this.code = code;
    this.countsRevision = countsRevision;
    Object.defineProperty(this, "stack", { value: undefined });
  }
}

/** Converts any thrown value. The messages of error responses are already written for users. */
export function toTollbridgeError(error: unknown): TollbridgeError {
  if (error instanceof TollbridgeError) return error;
  if (error instanceof ResponseError) {
    const data = error.data as { kind?: string; countsRevision?: number } | undefined; // see docs/protocol.md
    return new TollbridgeError(error.message, String(data?.kind ?? error.code), data?.countsRevision);
  }
  return new TollbridgeError(error instanceof Error ? error.message : String(error), "internal");
}
