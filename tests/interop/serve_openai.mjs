// Use both APIs of OpenAI's SDK, and print what they return.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { url, model } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
const City = z.object({ name: z.string(), population: z.number() });
const QUESTION = "Think, then get the weather in Rome";
const parameters = {
  type: "object",
  properties: { location: { type: "string" } },
  required: ["location"],
  additionalProperties: false,
};
const user = (content) => ({ role: "user", content });

const describe = (error) => ({ name: error.constructor.name, status: error.status, code: error.code, requestId: error.requestID });
async function failure(request) {
  try {
    await request();
    return null;
  } catch (error) {
    return describe(error);
  }
}

async function responses() {
  const whole = await client.responses.create({ model, input: "Hello" });
  const stream = client.responses.stream({ model, input: "Grüße 🌉" });
  let deltas = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") deltas += event.delta;
  const streamed = await stream.finalResponse();

  const tools = [{ type: "function", name: "get_weather", parameters, strict: false }];
  const first = await client.responses.stream({ model, input: [user(QUESTION)], tools }).finalResponse();
  const call = first.output.find((item) => item.type === "function_call");
  const input = [user(QUESTION)];
  // The helper adds a field to the call that the API does not have.
  for (const { parsed_arguments, ...item } of first.output) input.push(item);
  input.push({ type: "function_call_output", call_id: call.call_id, output: "Sunny" });
  const second = await client.responses.create({ model, input, tools });

  const parsed = await client.responses.parse({
    model,
    input: "Describe Rome",
    text: { format: zodTextFormat(City, "city") },
  });
  let text = "";
  let error = null;
  for await (const event of await client.responses.create({ model, input: "Hi fault:failed", stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.failed") error = event.response.error.message;
  }
  return {
    whole: { text: whole.output_text, usage: [whole.usage.input_tokens, whole.usage.output_tokens] },
    streamed: {
      text: streamed.output_text,
      deltas,
      usage: [streamed.usage.input_tokens, streamed.usage.output_tokens],
    },
    call: { name: call.name, arguments: call.arguments },
    reasoning: first.output.find((item) => item.type === "reasoning").summary[0].text,
    answer: second.output_text,
    parsed: parsed.output_parsed,
    broken: { text, error },
    refused: await failure(() => client.responses.create({ model, input: "Hi fault:unauthorized" })),
    missing: await failure(() => client.responses.create({ model, input: "Hi fault:not-found", stream: true })),
  };
}

async function completions() {
  const create = (fields) => client.chat.completions.create({ model, ...fields });
  const whole = await create({ messages: [user("Hello")] });
  const stream = client.chat.completions.stream({
    model,
    messages: [user("Grüße 🌉")],
    stream_options: { include_usage: true },
  });
  let deltas = "";
  for await (const chunk of stream) deltas += chunk.choices[0]?.delta?.content ?? "";
  const streamed = await stream.finalChatCompletion();

  const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
  const messages = [user(QUESTION)];
  const asked = client.chat.completions.stream({ model, messages, tools });
  let reasoning = ""; // a field that the SDK does not know, and does not add up
  for await (const chunk of asked) reasoning += chunk.choices[0]?.delta?.reasoning_content ?? "";
  const first = (await asked.finalChatCompletion()).choices[0];
  const { id, function: called } = first.message.tool_calls[0];
  const kept = { role: "assistant", content: first.message.content, tool_calls: first.message.tool_calls };
  const history = [...messages, kept, { role: "tool", tool_call_id: id, content: "Sunny" }];
  const second = await create({ messages: history, tools });

  const parsed = await client.chat.completions.parse({
    model,
    messages: [user("Describe Rome")],
    response_format: zodResponseFormat(City, "city"),
  });
  let text = "";
  const error = await failure(async () => {
    const broken = await create({ messages: [user("Hi fault:failed")], stream: true });
    for await (const chunk of broken) text += chunk.choices[0]?.delta?.content ?? "";
  });
  const usage = ({ prompt_tokens, completion_tokens }) => [prompt_tokens, completion_tokens];
  return {
    whole: { text: whole.choices[0].message.content, usage: usage(whole.usage) },
    streamed: { text: streamed.choices[0].message.content, deltas, usage: usage(streamed.usage) },
    call: { name: called.name, arguments: called.arguments },
    reasoning,
    answer: second.choices[0].message.content,
    parsed: parsed.choices[0].message.parsed,
    broken: { text, error: error?.name },
    refused: await failure(() => create({ messages: [user("Hi fault:unauthorized")] })),
    missing: await failure(() => create({ messages: [user("Hi fault:not-found")], stream: true })),
  };
}

const models = [];
for await (const entry of client.models.list()) models.push(entry.id);
const found = { models, responses: await responses(), completions: await completions() };
console.log(JSON.stringify(found));
