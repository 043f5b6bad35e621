// The texts an agent counts before its first question: every key and every string of every tool it may offer.

export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema?: object | undefined;
}

// Lists are counted like objects, so their indexes are texts too.
const INDEXES = 64;

export function textsOf(tools: readonly Tool[]): Set<string> {
  const found = new Set(Array.from({ length: INDEXES }, (_, index) => String(index)));
  for (const { name, description, inputSchema } of tools) collect({ name, description, parameters: inputSchema }, found);
  return found;
}

function collect(value: unknown, found: Set<string>): void {
  if (typeof value === "string") found.add(value);
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    if (!Array.isArray(value)) found.add(key);
    collect(inner, found);
  }
}
