// Scenarios of Vercel's `ai`: node scenarios.mjs SCENARIO JSON. Prints what came of it as JSON.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

globalThis.AI_SDK_LOG_WARNINGS = false;
const asked = JSON.parse(process.argv[3]);
const provider = createOpenAICompatible({
  name: 'edgegen',
  baseURL: asked.base_url,
  apiKey: asked.key,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = provider(asked.model);
const common = {
  model,
  messages: asked.messages,
  temperature: 0,
  maxRetries: 0,
  maxOutputTokens: asked.max_tokens,
  stopSequences: asked.stop,
};

const scenarios = {
  async chat() {
    const { text, response } = await generateText(common);
    const messages = [...asked.messages, ...response.messages, ...asked.messages];
    const next = await generateText({ ...common, messages });
    return { text, next: next.finishReason };
  },

  async stream() {
    const stream = streamText({ ...common, onError() {} });
    const pieces = [];
    for await (const piece of stream.textStream) pieces.push(piece);
    return { pieces, text: await stream.text, tokens: (await stream.usage).outputTokens };
  },

  // The first step must call; the second one, with the results, is the last.
  async tools() {
    const made = [];
    const get_weather = tool({
      description: 'The weather of a city.',
      inputSchema: z.object({ city: z.enum(['Oslo', 'Rome']), days: z.int().min(1).max(9) }),
      async execute(input) {
        made.push(input);
        return `rain in ${input.city} for ${input.days} days`;
      },
    });
    const calling = {
      ...common,
      tools: { get_weather },
      providerOptions: { edgegen: { parallel_tool_calls: asked.parallel } },
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'auto' }),
      stopWhen: stepCountIs(2),
    };
    const whole = await generateText(calling);
    const calls = made.splice(0);
    const stream = streamText({ ...calling, onError() {} });
    await stream.consumeStream();
    const messages = [...asked.messages, ...whole.response.messages, ...asked.messages];
    const bare = await generateText({ ...common, messages });
    return {
      calls,
      text: whole.text,
      streamed: { calls: made, text: await stream.text },
      next: bare.finishReason,
    };
  },

  async structured_output() {
    const schema = z.object({
      name: z.string().max(8),
      kind: z.enum(['cat', 'dog']),
      age: z.int().min(0).max(20),
    });
    const output = Output.object({ schema });
    const whole = await generateText({ ...common, output });
    const stream = streamText({ ...common, output, onError() {} });
    const partial = [];
    for await (const piece of stream.partialOutputStream) partial.push(piece);
    return { pet: whole.output, partial, streamed: await stream.output };
  },

  async errors() {
    const said = [];
    const settings = { ...common, providerOptions: { edgegen: asked.more } };
    await generateText(settings).catch((error) => said.push(error));
    await streamText({ ...settings, onError: ({ error }) => said.push(error) }).consumeStream();
    return said.map((error) => ({
      own: APICallError.isInstance(error),
      status: error.statusCode,
      message: error.message,
    }));
  },
};

console.log(JSON.stringify(await scenarios[process.argv[2]]()));
