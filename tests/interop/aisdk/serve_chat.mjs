// A chat endpoint as in the SDK's documentation: UI messages in, a UI message stream out.
// Its model repeats the prompt and the key it received as JSON; the prompt "fail" makes it fail mid-answer.
import { createServer } from 'node:http';

const major = Number(process.argv[2]);
const { convertToModelMessages, streamText } = await import(`ai${major}`);
const test = await import(`ai${major}/test`);
const MockModel = test.MockLanguageModelV4 ?? test.MockLanguageModelV3 ?? test.MockLanguageModelV2;

let authorization = null;

function usage(spec) {
  if (spec === 'v2') return { inputTokens: 10, outputTokens: 3, totalTokens: 13 };
  return { inputTokens: { total: 10 }, outputTokens: { total: 3 } };
}

const model = new MockModel({
  doStream: async ({ prompt }) => {
    const spec = model.specificationVersion;
    const text = JSON.stringify({ prompt, authorization });
    const failed = text.includes('"fail"');
    const reason = failed ? 'error' : 'stop';
    const chunks = [
      { type: 'stream-start', warnings: [] },
      { type: 'reasoning-start', id: 'r' },
      { type: 'reasoning-delta', id: 'r', delta: 'hm' },
      { type: 'reasoning-end', id: 'r' },
      { type: 'text-start', id: 't' },
      { type: 'text-delta', id: 't', delta: text.slice(0, 20) },
      { type: 'text-delta', id: 't', delta: text.slice(20) },
      { type: 'text-end', id: 't' },
      ...(failed ? [{ type: 'error', error: 'it broke' }] : []),
      {
        type: 'finish',
        finishReason: spec === 'v2' ? reason : { unified: reason, raw: reason },
        usage: usage(spec),
      },
    ];
    return { stream: new ReadableStream({ start: c => (chunks.forEach(x => c.enqueue(x)), c.close()) }) };
  },
});

const server = createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  authorization = request.headers.authorization ?? null;
  const { messages } = JSON.parse(body);
  const system = messages.filter(m => m.role === 'system').map(m => m.parts.map(p => p.text).join(''));
  const rest = messages.filter(m => m.role !== 'system');
  const result = streamText({
    model,
    messages: await convertToModelMessages(rest),
    ...(system.length ? { [major === 7 ? 'instructions' : 'system']: system.join('\n') } : {}),
    onError() {},
  });
  result.pipeUIMessageStreamToResponse(response, { onError: String });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
