// Runs tests inside the extension host, one after the other, and writes their results to a file.

import { writeFileSync } from "node:fs";

export interface Result {
  readonly name: string;
  readonly error?: string;
  readonly seconds: number;
  readonly figures?: unknown;
}

type Run = () => Promise<unknown>;

const TIMEOUT_MS = 45_000;
const tests: { name: string; run: Run }[] = [];

export function test(name: string, run: Run): void {
  tests.push({ name, run });
}

/** Called by VS Code. Fails if a test fails. */
export async function runAll(): Promise<void> {
  const only = process.env["TOLLBRIDGE_TEST_ONLY"];
  const results: Result[] = [];
  for (const { name, run } of tests.filter((entry) => !only || entry.name.includes(only))) {
    results.push(await runOne(name, run));
    writeFileSync(requireVariable("TOLLBRIDGE_TEST_RESULTS"), JSON.stringify(results, undefined, 1));
  }
  const failed = results.filter(({ error }) => error !== undefined);
  if (failed.length > 0) throw new Error(`${failed.length} of ${results.length} failed`);
}

export function requireVariable(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

async function runOne(name: string, run: Run): Promise<Result> {
  const started = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not finished after ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS);
  });
  const seconds = () => Math.round(performance.now() - started) / 1000;
  try {
    const figures = await Promise.race([run(), timeout]);
    return { name, seconds: seconds(), ...(figures === undefined ? {} : { figures }) };
  } catch (error) {
    const message = error instanceof Error ? `${error.message}\n${error.stack ?? ""}` : String(error);
    return { name, seconds: seconds(), error: message };
  } finally {
    clearTimeout(timer);
  }
}
