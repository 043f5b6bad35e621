// How these streams were recorded: a mock model of each release plays the same script, and what the SDK makes of
// it is written down: `fullStream` as JSON lines, and the body of its HTTP response.
//
//   npm install v4_0_0@npm:ai@4.0.0 v5_0_277@npm:ai@5.0.277 … zod && node record.mjs FOLDER v4_0_0 v5_0_277 …
//
// A release that cannot play a script (4.0.0 knows no files, sources or reasoning) leaves no recording of it.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC';

// The words of each dialect that a model speaks: v1 (ai 4), alpha (5.0.0-alpha), v2 (ai 5), v3 (ai 6), v4 (ai 7).
function words(spec) {
  const early = spec === 'v1' || spec === 'alpha';
  const usage = {
    v1: { promptTokens: 10, completionTokens: 3 },
    v3: { inputTokens: { total: 10, noCache: 10 }, outputTokens: { total: 3, text: 3 } },
  };
  usage.v4 = usage.v3;
  const text = {
    v1: pieces => pieces.map(textDelta => ({ type: 'text-delta', textDelta })),
    alpha: pieces => pieces.map(text => ({ type: 'text', text })),
  };
  const thought = {
    v1: pieces => [
      ...pieces.map(textDelta => ({ type: 'reasoning', textDelta })),
      { type: 'reasoning-signature', signature: 'sig' },
    ],
    alpha: pieces => [...pieces.map(text => ({ type: 'reasoning', text })), { type: 'reasoning-part-finish' }],
  };
  const block = (kind, id, end) => pieces => [
    { type: `${kind}-start`, id },
    ...pieces.map(delta => ({ type: `${kind}-delta`, id, delta })),
    { type: `${kind}-end`, id, ...end },
  ];
  const signed = { providerMetadata: { anthropic: { signature: 'sig' } } };
  const input = (id, name, given) => {
    const halves = [given.slice(0, 5), given.slice(5)];
    if (!early) {
      return [
        { type: 'tool-input-start', id, toolName: name },
        ...halves.map(delta => ({ type: 'tool-input-delta', id, delta })),
        { type: 'tool-input-end', id },
      ];
    }
    const named = { type: 'tool-call-delta', toolCallType: 'function', toolCallId: id, toolName: name };
    return halves.map(half => ({ ...named, argsTextDelta: half, inputTextDelta: half }));
  };
  const file = {
    v1: { mimeType: 'image/png', data: PNG },
    v4: { mediaType: 'image/png', data: { type: 'data', data: PNG } },
  };
  const source = { sourceType: 'url', id: 's1', url: 'https://example.com/', title: 'T' };
  return {
    start: spec === 'v1' ? [] : [{ type: 'stream-start', warnings: [] }],
    text: (...pieces) => (text[spec] ?? block('text', '0', {}))(pieces),
    thought: (...pieces) => (thought[spec] ?? block('reasoning', 'r', signed))(pieces),
    input,
    call: (id, name, given, more = {}) => [
      early
        ? { type: 'tool-call', toolCallType: 'function', toolCallId: id, toolName: name, args: given }
        : { type: 'tool-call', toolCallId: id, toolName: name, input: given, ...more },
    ],
    result: (id, name) => [
      { type: 'tool-result', toolCallId: id, toolName: name, result: [1], providerExecuted: true },
    ],
    file: () => [{ type: 'file', ...(file[spec] ?? { mediaType: 'image/png', data: PNG }) }],
    source: () => [spec === 'v1' ? { type: 'source', source } : { type: 'source', ...source }],
    error: error => [{ type: 'error', error }],
    finish: reason => [
      {
        type: 'finish',
        finishReason: spec === 'v3' || spec === 'v4' ? { unified: reason, raw: reason } : reason,
        usage: usage[spec] ?? { inputTokens: 10, outputTokens: 3, totalTokens: 13 },
      },
    ],
  };
}

const X = '{"x":"1"}';
const OVERLOADED = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } };
// One list of parts for each step of the answer.
const SCRIPTS = {
  'plain-text': w => [[...w.text('Hel', 'lo'), ...w.finish('stop')]],
  'split-surrogate': w => [[...w.text('ok \ud83d', '\ude00 done'), ...w.finish('stop')]],
  reasoning: w => [[...w.thought('let ', 'me'), ...w.text('ok'), ...w.finish('stop')]],
  'tool-streamed': w => [[...w.input('c1', 'client', X), ...w.call('c1', 'client', X), ...w.finish('tool-calls')]],
  'tool-parallel': w => [
    [...w.call('c1', 'client', X), ...w.call('c2', 'client', '{"x":"2"}'), ...w.finish('tool-calls')],
  ],
  'tool-no-final': w => [[...w.input('c1', 'client', X), ...w.finish('tool-calls')]],
  'tool-executed': w => [[...w.input('c1', 'server', X), ...w.call('c1', 'server', X), ...w.finish('tool-calls')]],
  'tool-throws': w => [[...w.call('c1', 'broken', X), ...w.finish('tool-calls')]],
  'tool-invalid': w => [[...w.call('c1', 'client', '{"x":'), ...w.finish('tool-calls')]],
  'tool-provider': w => [
    [
      ...w.call('c1', 'web', X, { providerExecuted: true }),
      ...w.result('c1', 'web'),
      ...w.text('found'),
      ...w.finish('stop'),
    ],
  ],
  'multi-step': w => [
    [...w.text('one '), ...w.call('c1', 'server', X), ...w.finish('tool-calls')],
    [...w.text('two'), ...w.finish('stop')],
  ],
  file: w => [[...w.file(), ...w.text('x'), ...w.finish('stop')]],
  source: w => [[...w.source(), ...w.text('x'), ...w.finish('stop')]],
  'error-string': w => [[...w.text('par'), ...w.error('plain failure'), ...w.finish('error')]],
  'error-object': w => [[...w.text('par'), ...w.error(OVERLOADED), ...w.finish('error')]],
};

function ask(ai, Model, steps) {
  let step = 0;
  const model = new Model({
    doStream: async () => {
      const parts = structuredClone(steps[Math.min(step++, steps.length - 1)]);
      const stream = new ReadableStream({ start: c => (parts.forEach(part => c.enqueue(part)), c.close()) });
      return { stream, rawCall: { rawPrompt: null, rawSettings: {} } };
    },
  });
  const schema = ai.jsonSchema({ type: 'object', properties: { x: { type: 'string' } } });
  const tool = execute => ({ description: 'd', inputSchema: schema, parameters: schema, ...(execute && { execute }) });
  const tools = {
    client: tool(),
    web: tool(),
    server: tool(async () => ({ ok: 1 })),
    broken: tool(async () => {
      throw new Error('tool exploded');
    }),
  };
  const more = steps.length > 1 ? { maxSteps: 5, ...(ai.stepCountIs && { stopWhen: ai.stepCountIs(5) }) } : {};
  const streaming = { toolCallStreaming: true, experimental_toolCallStreaming: true };
  return ai.streamText({ model, prompt: 'hi', tools, ...more, ...streaming, maxRetries: 0, onError() {} });
}

const told = error => error?.message ?? (typeof error === 'string' ? error : JSON.stringify(error));

async function record(folder, ai, Model, name, steps) {
  let full = '';
  for await (const chunk of ask(ai, Model, steps).fullStream) full += JSON.stringify(chunk) + '\n';
  writeFileSync(join(folder, `${name}.full.jsonl`), full);
  const options = { sendReasoning: true, sendSources: true, onError: told, getErrorMessage: told };
  const result = ask(ai, Model, steps);
  const isUi = 'toUIMessageStreamResponse' in result;
  const response = isUi ? result.toUIMessageStreamResponse(options) : result.toDataStreamResponse(options);
  writeFileSync(join(folder, `${name}.${isUi ? 'ui.sse' : 'ui.ds.txt'}`), await response.text());
}

const [target, ...releases] = process.argv.slice(2);
for (const release of releases) {
  const ai = await import(release);
  const test = await import(`${release}/test`);
  const version = release.slice(1).replaceAll('__', '-').replaceAll('_', '.');
  const spec = ['V4', 'V3', 'V2', 'V1'].find(spec => test[`MockLanguageModel${spec}`]);
  const dialect = version.includes('alpha') ? 'alpha' : spec.toLowerCase();
  const folder = join(target, version);
  mkdirSync(folder, { recursive: true });
  for (const [name, script] of Object.entries(SCRIPTS)) {
    const w = words(dialect);
    const steps = script(w).map(parts => [...w.start, ...parts]);
    try {
      await record(folder, ai, test[`MockLanguageModel${spec}`], name, steps);
    } catch (error) {
      console.error(`${version} cannot play ${name}: ${error.message}`);
    }
  }
}
