// Use Anthropic's SDK, and print what it returns.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

const { url, model } = JSON.parse(process.argv[2]);
const client = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 0 });
const City = z.object({ name: z.string(), population: z.number() });
const user = (content) => ({ role: "user", content });
const create = (content, fields = {}) =>
  client.messages.create({ model, max_tokens: 500, messages: [user(content)], ...fields });
const text = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
const usage = (message) => [message.usage.input_tokens, message.usage.output_tokens];

async function failure(request) {
  try {
    await request();
    return null;
  } catch (error) {
    return { name: error.constructor.name, status: error.status, requestId: error.requestID, message: error.message };
  }
}

const whole = await create("Hello");
const stream = client.messages.stream({ model, max_tokens: 500, messages: [user("Grüße 🌉")] });
let deltas = "";
stream.on("text", (delta) => (deltas += delta));
const streamed = await stream.finalMessage();

const tools = [
  {
    name: "get_weather",
    input_schema: { type: "object", properties: { location: { type: "string" } }, required: ["location"] },
  },
];
const messages = [user("Think, then get the weather in Rome")];
const thinking = { type: "enabled", budget_tokens: 1024 };
const first = await client.messages.stream({ model, max_tokens: 2000, messages, tools, thinking }).finalMessage();
const call = first.content.find((block) => block.type === "tool_use");
const result = { type: "tool_result", tool_use_id: call.id, content: "Sunny" };
const history = [...messages, { role: "assistant", content: first.content }, user([result])];
const second = await client.messages.create({ model, max_tokens: 2000, messages: history, tools });

const parsed = await client.messages.parse({
  model,
  max_tokens: 500,
  messages: [user("Describe Rome")],
  output_config: { format: zodOutputFormat(City) },
});
const counted = await client.messages.countTokens({ model, messages: [user("Hello")] });
const models = [];
for await (const entry of client.models.list()) models.push(entry.id);
let before = "";
const broken = await failure(async () => {
  for await (const event of await create("Hi fault:failed", { stream: true }))
    if (event.delta?.type === "text_delta") before += event.delta.text;
});

console.log(
  JSON.stringify({
    models,
    whole: { text: text(whole), usage: usage(whole) },
    streamed: { text: text(streamed), deltas, usage: usage(streamed) },
    call: { name: call.name, input: call.input, stop: first.stop_reason },
    reasoning: first.content.find((block) => block.type === "thinking").thinking,
    answer: text(second),
    parsed: parsed.parsed_output,
    counted: counted.input_tokens,
    broken: { text: before, error: broken },
    refused: await failure(() => create("Hi fault:unauthorized")),
    missing: await failure(() => create("Hi fault:not-found", { stream: true })),
  }),
);
