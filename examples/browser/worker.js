// Runs the model in a thread of its own, so that the page stays alive.
import { Bundle, greedy, sampler } from "./bundle.js";

let bundle = null;
let running = 0; // the number of the request that may go on

const { port1, port2 } = new MessageChannel();

/** Lets messages in. A timer would wait 4 ms each time. */
function turn() {
  return new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(null);
  });
}

const TASKS = {
  async load({ url, kv }) {
    bundle = await Bundle.open(url, { kv, onProgress: (done, total) => postMessage({ kind: "progress", done, total }) });
    postMessage({ kind: "loaded", name: bundle.name, maxContext: bundle.maxContext });
  },

  async generate({ request, prompt, maxNewTokens, sample }) {
    running = request;
    const ids = bundle.encode(prompt);
    const began = performance.now();
    const made = [];
    const tail = ids.slice(-8); // a tokenizer may drop the space before a text's first word
    const before = bundle.decode(tail).length;
    let first = null;
    // "stop" is read between two steps.
    const stopped = () => running !== request;
    for await (const id of bundle.generate(ids, { maxNewTokens, pick: sample ? sampler() : greedy, stopped })) {
      first ??= performance.now();
      made.push(id);
      // The whole answer each time: a token may end amid a character, and its text depends on those before.
      postMessage({ kind: "text", request, text: bundle.decode([...tail, ...made]).slice(before).replace(/\uFFFD+$/, "") });
      await turn();
    }
    const seconds = (performance.now() - (first ?? began)) / 1000;
    postMessage({
      kind: "done",
      request,
      promptIds: ids,
      ids: made,
      stopped: stopped(),
      firstToken: ((first ?? performance.now()) - began) / 1000,
      tokensPerSecond: made.length > 1 ? (made.length - 1) / seconds : 0,
    });
  },

  stop() {
    running = 0;
  },
};

onmessage = async ({ data }) => {
  try {
    await TASKS[data.kind](data);
  } catch (error) {
    postMessage({ kind: "failed", request: data.request, message: error.message });
  }
};
