// Scenarios of npm's `ollama`: node scenarios.mjs SCENARIO JSON. Prints what came of it as JSON.
import { Ollama } from 'ollama';

const asked = JSON.parse(process.argv[3]);
const client = new Ollama({ host: asked.host });
const body = asked.body;

async function joined(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return pieces;
}

const scenarios = {
  async chat() {
    const answer = await client.chat(body);
    const messages = [...body.messages, answer.message, ...body.messages];
    const next = await client.chat({ ...body, messages });
    const { models } = await client.list();
    const { version } = await client.version();
    return { text: answer.message.content, next: next.done_reason, models: models.map(({ name }) => name), version };
  },

  async stream() {
    const pieces = await joined(await client.chat({ ...body, stream: true }));
    return { text: pieces.map((piece) => piece.message.content).join(''), last: pieces.at(-1) };
  },

  async tools() {
    const { message } = await client.chat(body);
    const calls = message.tool_calls.map((call) => call.function);
    const result = { role: 'tool', tool_name: calls[0].name, content: 'rain' };
    const options = { num_predict: 20 };
    const next = await client.chat({ ...body, options, messages: [...body.messages, message, result] });
    return { calls, next: next.done_reason };
  },

  async structured_output() {
    return JSON.parse((await client.chat(body)).message.content);
  },

  async errors() {
    const said = [];
    await client.chat(body).catch((error) => said.push(error));
    await client.chat({ ...body, stream: true }).then(joined).catch((error) => said.push(error));
    return said.map((error) => ({ status: error.status_code, message: error.message }));
  },
};

console.log(JSON.stringify(await scenarios[process.argv[2]]()));
