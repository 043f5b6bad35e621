// Runs one of the AI SDK's readers over a stream, and prints the CPU time per chunk as one line of JSON.
import { readFileSync } from 'node:fs';
import { parseJsonEventStream, readUIMessageStream, streamText, uiMessageChunkSchema } from 'ai7';
import { MockLanguageModelV4 } from 'ai7/test';

const PASSES = 6;
const [kind, name, path, size] = process.argv.slice(2);
const body = readFileSync(path);
const separator = kind === 'ui' ? '\n\n' : '\n';
const frames = [];
for (let start = 0, end; (end = body.indexOf(separator, start)) >= 0; start = end + separator.length) {
  frames.push(body.subarray(start, end + separator.length));
}
const read = Number(size);
const pieces = [];
if (read === 0) pieces.push(...frames);
else for (let start = 0; start < body.length; start += read) pieces.push(body.subarray(start, start + read));

const source = values => new ReadableStream({
  start(controller) {
    for (const value of values) controller.enqueue(value);
    controller.close();
  },
});

const uiChunks = () => parseJsonEventStream({ stream: source(pieces), schema: uiMessageChunkSchema });

// The parts that a model returns for the same answer: the input of streamText.
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
    let chunkCount = 0;
    if (kind === 'ui') {
      for await (const chunk of uiChunks()) if (chunk.success) chunkCount++;
      return chunkCount;
    }
    const model = new MockLanguageModelV4({ doStream: async () => ({ stream: source(parts) }) });
    for await (const _ of streamText({ model, prompt: 'go', onError() {} }).fullStream) chunkCount++;
    return chunkCount;
  },
  async 'sdk-message'() {
    let chunkCount = 0;
    const stream = uiChunks().pipeThrough(new TransformStream({
      transform: (chunk, controller) => controller.enqueue(chunk.value),
    }));
    for await (const _ of readUIMessageStream({ stream })) chunkCount++;
    return chunkCount;
  },
  async parse() {
    let chunkCount = 0;
    let rest = '';
    const decoder = new TextDecoder();
    for await (const piece of source(pieces)) {
      const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
      rest = lines.pop();
      for (const line of lines) if (JSON.parse(line).type) chunkCount++;
    }
    return chunkCount;
  },
};

const costs = [];
let chunkCount = 0;
for (let pass = 0; pass < PASSES; pass++) {
  const before = process.cpuUsage();
  chunkCount = await readers[name]();
  const { user, system } = process.cpuUsage(before);
  costs.push(user + system);
}
const measured = costs.slice(1).sort((a, b) => a - b);
console.log(JSON.stringify({ cpu_us: measured[Math.floor(measured.length / 2)] / frames.length, chunkCount }));
