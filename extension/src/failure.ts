// Errors a person reads. The host prints the stack of any error that has one, so ours have none.

import { ResponseError } from "vscode-jsonrpc/node";

export const CANCELLED = -32800;

export class Failure extends Error {
  readonly code: string;

  constructor(message: string, code: string) {
    super(message);
    this.name = "Tollbridge";
    this.code = code;
    Object.defineProperty(this, "stack", { value: undefined });
  }
}

export function isCancelled(error: unknown): boolean {
  return error instanceof ResponseError && error.code === CANCELLED;
}

/** The sidecar's answers are sentences already; what else goes wrong becomes one. */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof ResponseError) return new Failure(error.message, String(error.data?.kind ?? error.code));
  return new Failure(error instanceof Error ? error.message : String(error), "internal");
}
