// The real SDK with its real gateway client, connected to the embedded gateway.
// In: {origin, major, asks: [{name, prompt | messages, instructions, tools, scenario, key}]}. Out: the result of each.
import { readFileSync } from 'node:fs';

const { origin, major, asks } = JSON.parse(readFileSync(0, 'utf8'));
const spec = major - 3;
const { jsonSchema, streamText, tool } = await import(`ai${major}`);
const { createGateway } = await import(`gateway${spec}`);
const base = `${origin}/${{ 2: 'v1', 3: 'v3', 4: 'v4' }[spec]}/ai`;

async function ask({ name, messages, instructions, tools, scenario, key, options }) {
  const headers = scenario ? { 'x-tollbridge-scenario': scenario } : {};
  const gateway = createGateway({ baseURL: base, apiKey: key ?? 'key', headers });
  if (name === 'models') return gateway.getAvailableModels();
  const seen = { name, text: '', reasoning: '', calls: [], files: [], sources: [], errors: [], proof: null };
  const system = instructions ? { [major === 7 ? 'instructions' : 'system']: instructions } : {};
  const described = (tools ?? []).map(({ name, description, inputSchema }) => [
    name,
    tool({ description, inputSchema: jsonSchema(inputSchema) }),
  ]);
  const result = streamText({
    model: gateway('tollbridge/demo'),
    messages,
    ...system,
    ...(described.length ? { tools: Object.fromEntries(described) } : {}),
    ...options,
    maxRetries: 0,
    onError() {},
  });
  for await (const part of result.fullStream) {
    if (part.type === 'text-delta') seen.text += part.text;
    if (part.type === 'reasoning-delta') seen.reasoning += part.text;
    if (part.type === 'reasoning-end') seen.proof = part.providerMetadata ?? null;
    if (part.type === 'tool-call') seen.calls.push({ id: part.toolCallId, name: part.toolName, input: part.input });
    if (part.type === 'file') seen.files.push({ mediaType: part.file.mediaType, base64: part.file.base64 });
    if (part.type === 'source') seen.sources.push(part.url);
    if (part.type === 'error') {
      const { name, message, statusCode, type } = part.error;
      seen.errors.push({ name, message: message ?? String(part.error), statusCode, type });
    }
    if (part.type === 'finish') Object.assign(seen, { reason: part.finishReason, usage: part.totalUsage });
  }
  return seen;
}

for (const one of asks) console.log(JSON.stringify(await ask(one)));
