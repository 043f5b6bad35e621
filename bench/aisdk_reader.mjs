// The SDK's own readers over the same bytes: CPU for each chunk, as one line of JSON.
import { readFileSync } from 'node:fs';
import { parseJsonEventStream, readUIMessageStream, streamText, uiMessageChunkSchema } from 'ai7';
import { MockLanguageModelV4 } from 'ai7/test';

const PASSES = 6;
const [kind, name, path, size] = process.argv.slice(2);
const body = readFileSync(path);
const mark = kind === 'ui' ? '\n\n' : '\n';
const frames = [];
for (let at = 0, end; (end = body.indexOf(mark, at)) >= 0; at = end + mark.length) {
  frames.push(body.subarray(at, end + mark.length));
}
const read = Number(size);
const pieces = [];
if (read === 0) pieces.push(...frames);
else for (let at = 0; at < body.length; at += read) pieces.push(body.subarray(at, at + read));

const source = values => new ReadableStream({
  start(controller) {
    for (const value of values) controller.enqueue(value);
    controller.close();
  },
});

const uiChunks = () => parseJsonEventStream({ stream: source(pieces), schema: uiMessageChunkSchema });

// What a model gives for the same answer: the parts that the full stream was made of.
const nested = { inputTokens: { total: 1200 }, outputTokens: { total: 10000 } };
const asPart = chunk => {
  if (chunk.type === 'start') return { type: 'stream-start', warnings: [] };
  if (chunk.type === 'finish') {
    return { type: 'finish', finishReason: { unified: 'tool-calls', raw: 'tool-calls' }, usage: nested };
  }
  if (chunk.type === 'tool-call') return { ...chunk, input: JSON.stringify(chunk.input) };
  return 'text' in chunk ? { type: chunk.type, id: chunk.id, delta: chunk.text } : chunk;
};
const parts = kind === 'ui' ? [] : frames
  .map(frame => JSON.parse(frame.toString()))
  .filter(chunk => !chunk.type.endsWith('-step'))
  .map(asPart);

const readers = {
  async sdk() {
    let seen = 0;
    if (kind === 'ui') {
      for await (const chunk of uiChunks()) if (chunk.success) seen++;
      return seen;
    }
    const model = new MockLanguageModelV4({ doStream: async () => ({ stream: source(parts) }) });
    for await (const _ of streamText({ model, prompt: 'go', onError() {} }).fullStream) seen++;
    return seen;
  },
  async 'sdk-message'() {
    let seen = 0;
    const stream = uiChunks().pipeThrough(new TransformStream({
      transform: (chunk, controller) => controller.enqueue(chunk.value),
    }));
    for await (const _ of readUIMessageStream({ stream })) seen++;
    return seen;
  },
  async parse() {
    let seen = 0;
    let held = '';
    const decoder = new TextDecoder();
    for await (const piece of source(pieces)) {
      const lines = (held + decoder.decode(piece, { stream: true })).split('\n');
      held = lines.pop();
      for (const line of lines) if (JSON.parse(line).type) seen++;
    }
    return seen;
  },
};

const costs = [];
let seen = 0;
for (let pass = 0; pass < PASSES; pass++) {
  const before = process.cpuUsage();
  seen = await readers[name]();
  const { user, system } = process.cpuUsage(before);
  costs.push(user + system);
}
const counted = costs.slice(1).sort((a, b) => a - b);
console.log(JSON.stringify({ cpu_us: counted[Math.floor(counted.length / 2)] / frames.length, seen }));
