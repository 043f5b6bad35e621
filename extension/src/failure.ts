// Errors a person reads. The host prints the stack of any error that has one, so ours have none.

import { ResponseError } from "vscode-jsonrpc/node";

export class Failure extends Error {
  readonly code: string;
  readonly lesson: number | undefined; // what the engine learned from the refusal, where it did

  constructor(message: string, code: string, lesson?: number) {
    super(message);
    this.name = "Tollbridge";
    this.code = code;
    this.lesson = lesson;
    Object.defineProperty(this, "stack", { value: undefined });
  }
}

/** The sidecar's answers are sentences already; what else goes wrong becomes one. */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof ResponseError) {
    return new Failure(error.message, String(error.data?.kind ?? error.code), error.data?.lesson);
  }
  return new Failure(error instanceof Error ? error.message : String(error), "internal");
}
