// Use one provider of the AI SDK, and print what it returns.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, Output, streamText, tool } from "ai";
import { z } from "zod";

const { url, model: name, provider } = JSON.parse(process.argv[2]);
const settings = { baseURL: `${url}/v1`, apiKey: "any" };
const PROVIDERS = {
  "openai-responses": () => createOpenAI(settings).responses(name),
  "openai-chat": () => createOpenAI(settings).chat(name),
  anthropic: () => createAnthropic(settings)(name),
  "openai-compatible": () =>
    createOpenAICompatible({ ...settings, name: "tollbridge", includeUsage: true, supportsStructuredOutputs: true })(name),
};
const model = PROVIDERS[provider]();
const base = { model, maxRetries: 0, maxOutputTokens: 2000 };
const tokens = (usage) => [usage.inputTokens, usage.outputTokens];

async function stream(fields) {
  const errors = [];
  const result = streamText({ ...base, ...fields, onError: ({ error }) => errors.push(error) });
  const found = { text: "", reasoning: "", calls: [], results: [], errors: [] };
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") found.text += part.text;
    if (part.type === "reasoning-delta") found.reasoning += part.text;
    if (part.type === "tool-call") found.calls.push([part.toolName, part.input]);
    if (part.type === "tool-result") found.results.push(part.output);
    if (part.type === "finish") Object.assign(found, { finish: part.finishReason, usage: tokens(part.totalUsage) });
  }
  found.errors = errors.map((error) => ({
    name: error?.name,
    status: error?.statusCode ?? null,
    message: error?.message ?? JSON.stringify(error),
  }));
  return found;
}

const weather = tool({
  description: "The weather at a place",
  inputSchema: jsonSchema({
    type: "object",
    properties: { location: { type: "string" } },
    required: ["location"],
    additionalProperties: false,
  }),
  execute: async () => "Sunny",
});

const streamed = await stream({ prompt: "Grüße 🌉" });
const whole = await generateText({ ...base, prompt: "Hello" });
const tools = await stream({
  prompt: "Think, then get the weather in Rome",
  tools: { get_weather: weather },
  stopWhen: isStepCount(3),
});
const { output } = await generateText({
  ...base,
  prompt: "Describe Rome",
  output: Output.object({ schema: z.object({ name: z.string(), population: z.number() }) }),
});
console.log(
  JSON.stringify({
    streamed,
    whole: { text: whole.text, usage: tokens(whole.usage), finish: whole.finishReason },
    tools,
    output,
    refused: await stream({ prompt: "Hi fault:unauthorized" }),
    broken: await stream({ prompt: "Hi fault:failed" }),
  }),
);
