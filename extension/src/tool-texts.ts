// The texts that VS Code's agent counts before its first request: every key and every string of every tool.

export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema?: object | undefined;
}

// The agent counts lists like objects, so it also counts their indexes.
const MAX_INDEXES = 64;

export function collectToolTexts(tools: readonly Tool[]): Set<string> {
  const texts = new Set(Array.from({ length: MAX_INDEXES }, (_, index) => String(index)));
  for (const { name, description, inputSchema } of tools) {
    collectTexts({ name, description, parameters: inputSchema }, texts);
  }
  return texts;
}

function collectTexts(value: unknown, texts: Set<string>): void {
  if (typeof value === "string") texts.add(value);
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    if (!Array.isArray(value)) texts.add(key);
    collectTexts(inner, texts);
  }
}
