// How the real SDK reads ModelMessages: whether its schema accepts them, and the prompt that its model receives.
// In: one JSON conversation per line, {name, target, messages, instructions}. Out: one line for each.
import { createInterface } from 'node:readline';

const sdks = {};
for (const target of [5, 6, 7]) {
  const ai = await import(`ai${target}`);
  const test = await import(`ai${target}/test`);
  sdks[target] = {
    ...ai,
    MockModel: test.MockLanguageModelV4 ?? test.MockLanguageModelV3 ?? test.MockLanguageModelV2,
  };
}

const plain = (_, value) =>
  value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value instanceof URL ? value.href : value;

async function check({ name, target, messages, instructions }) {
  const { MockModel, modelMessageSchema, streamText } = sdks[target];
  const refused = messages
    .map(message => modelMessageSchema.safeParse(message))
    .filter(verdict => !verdict.success)
    .map(verdict => String(verdict.error));
  let prompt = null;
  let error = null;
  const model = new MockModel({
    doStream: async options => {
      prompt = options.prompt;
      return { stream: new ReadableStream({ start: controller => controller.close() }) };
    },
  });
  try {
    const system = instructions === null ? {} : { [target === 7 ? 'instructions' : 'system']: instructions };
    const onError = event => {
      if (prompt === null) error = String(event.error);
    };
    const result = streamText({ model, messages, ...system, onError, maxRetries: 0 });
    for await (const _ of result.fullStream);
  } catch (thrown) {
    if (prompt === null) error = String(thrown);
  }
  return { name, target, refused, error, prompt };
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await check(JSON.parse(line)), plain));
}
