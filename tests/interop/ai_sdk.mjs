// Send a request with the AI SDK's Open Responses provider, and print the whole result.
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

const task = JSON.parse(process.argv[2]);
const provider = createOpenResponses({ name: "tollbridge", url: `${task.url}/responses`, apiKey: task.apiKey });

const tools = Object.fromEntries(
  (task.tools ?? []).map(({ name, description, parameters, result }) => [
    name,
    tool({
      description,
      inputSchema: jsonSchema(parameters),
      ...(result === undefined ? {} : { execute: async () => result }),
    }),
  ]),
);

const request = {
  model: provider(task.model ?? "tollbridge/demo"),
  maxRetries: 0,
  ...(task.messages ? { messages: task.messages } : { prompt: task.prompt }),
  ...(task.system ? { system: task.system } : {}),
  ...(task.tools ? { tools, stopWhen: isStepCount(task.steps ?? 1) } : {}),
};

const call = ({ toolCallId, toolName, input }) => ({ toolCallId, toolName, input });
const problem = (error) => ({
  name: error?.name,
  message: error?.message ?? String(error),
  status: error?.statusCode ?? null,
  retryable: error?.isRetryable ?? null,
});

async function stream() {
  const errors = [];
  const result = streamText({ ...request, onError: ({ error }) => errors.push(problem(error)) });
  const found = { text: "", reasoning: "", calls: [], kinds: [], errors };
  try {
    for await (const part of result.fullStream) {
      if (found.kinds.at(-1) !== part.type) found.kinds.push(part.type);
      if (part.type === "text-delta") found.text += part.text;
      if (part.type === "reasoning-delta") found.reasoning += part.text;
      if (part.type === "tool-call") found.calls.push(call(part));
      if (part.type === "finish") Object.assign(found, { finish: part.finishReason, usage: part.totalUsage });
    }
  } catch (error) {
    errors.push(problem(error));
  }
  return found;
}

async function generate() {
  try {
    const { text, reasoningText, toolCalls, steps, finishReason, usage } = await generateText(request);
    return { text, reasoning: reasoningText, calls: toolCalls.map(call), steps: steps.length, finish: finishReason, usage };
  } catch (error) {
    return { errors: [problem(error)] };
  }
}

console.log(JSON.stringify(await (task.stream ? stream() : generate())));
