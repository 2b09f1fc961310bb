// A bundle in the browser: its files verified, its tokenizer, its prefill graph and its KV cache. No server is needed.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";
import { Tokenizer } from "./node_modules/@huggingface/tokenizers/dist/tokenizers.min.mjs";

const FORMAT_VERSION = 3;
const CHUNK = 64; // tokens of a prompt in one run
const GROWTH = 128; // the KV cache grows by so many tokens: every run copies all of it

ort.env.wasm.numThreads = globalThis.crossOriginIsolated ? navigator.hardwareConcurrency : 1;

export class Bundle {
  /** Open the bundle at `url`. `kv`: "int8" or "float32"; `onProgress(done, total)`: bytes that are there and verified. */
  static async open(url, { kv = null, onProgress = () => {} } = {}) {
    const root = new URL(url.endsWith("/") ? url : `${url}/`, self.location.href);
    const manifest = JSON.parse(new TextDecoder().decode(await download(new URL("edgegen.json", root))));
    if (manifest.format_version !== FORMAT_VERSION) {
      throw new Error(`${root}edgegen.json is of format ${manifest.format_version}: ${FORMAT_VERSION} is read here.`);
    }
    const variant = manifest.variants.find((each) => kv === null || each.kv.dtype === kv);
    if (!variant) {
      throw new Error(`this bundle has no ${kv} KV cache: ${manifest.variants.map((each) => each.kv.dtype).join(", ")}.`);
    }
    refuse(variant, manifest);
    const names = [manifest.tokenizer, "tokenizer_config.json", manifest.generation_config, variant.prefill, variant.weights];
    const wanted = names.filter((name) => name in manifest.files);
    const total = wanted.reduce((sum, name) => sum + manifest.files[name].size, 0);
    const files = {};
    let done = 0;
    for (const name of wanted) {
      const bytes = await download(new URL(`${manifest.folder}/${name}`, root), (more) => onProgress((done += more), total));
      await verify(name, bytes, manifest.files[name]);
      files[name] = bytes;
    }
    const json = (name) => (files[name] ? JSON.parse(new TextDecoder().decode(files[name])) : {});
    const session = await ort.InferenceSession.create(files[variant.prefill], {
      executionProviders: ["wasm"],
      externalData: [{ path: variant.weights, data: files[variant.weights] }],
    });
    const tokenizer = new Tokenizer(json(manifest.tokenizer), json("tokenizer_config.json"));
    return new Bundle(manifest, variant, session, tokenizer, json(manifest.generation_config));
  }

  constructor(manifest, variant, session, tokenizer, config) {
    this.name = manifest.name;
    this.maxContext = manifest.model.max_context;
    this.tokenizer = tokenizer;
    this.config = config;
    this.eos = new Set([config.eos_token_id ?? []].flat());
    this._variant = variant;
    this._session = session;
  }

  encode(text) {
    const ids = this.tokenizer.encode(text).ids;
    return ids.length ? ids : [this.config.bos_token_id ?? 0];
  }

  decode(ids) {
    return this.tokenizer.decode(ids, { skip_special_tokens: true });
  }

  /** The ids that follow `prompt`, one by one. `pick(logits)` chooses; `stopped()` is asked before each step. */
  async *generate(prompt, { maxNewTokens = 100, pick = greedy, stopped = () => false } = {}) {
    if (prompt.length >= this.maxContext) {
      throw new Error(`the prompt has ${prompt.length} tokens, and the context ${this.maxContext}: shorten it.`);
    }
    const cache = new Cache(this._variant, this.maxContext);
    let logits;
    for (let at = 0; at < prompt.length && !stopped(); at += CHUNK) {
      logits = await this._run(cache, prompt.slice(at, at + CHUNK));
    }
    for (let made = 0; made < maxNewTokens && !stopped(); made++) {
      const id = pick(logits);
      if (this.eos.has(id)) return;
      yield id;
      if (cache.length + 1 >= this.maxContext || made + 1 === maxNewTokens) return;
      logits = await this._run(cache, [id]);
    }
  }

  /** Append `ids` to the cache: float32 logits [v] of what follows the last one. */
  async _run(cache, ids) {
    const { contract } = this._variant;
    const positions = ids.map((id, i) => cache.length + i);
    const feeds = {
      [contract.input_ids]: integers(ids, [1, ids.length]),
      [contract.position_ids]: integers(positions, [1, ids.length]),
      [contract.logits_indices]: integers([ids.length - 1], [1, 1]),
      ...cache.feeds(ids.length),
    };
    const found = await this._session.run(feeds);
    cache.take(found, ids.length);
    return found[contract.logits].data;
  }
}

/** Keys and values of every layer: the outputs of one run are the inputs of the next. */
class Cache {
  constructor(variant, most) {
    this.length = 0;
    this._kv = variant.kv;
    this._rotary = variant.rotary;
    this._most = most;
    this._capacity = 0;
    this._arrays = {};
  }

  feeds(more) {
    const length = this.length + more;
    if (length > this._capacity) this._grow(Math.min(this._most, Math.ceil(length / GROWTH) * GROWTH));
    const feeds = { ...this._arrays };
    for (const { seqlens, total } of Object.values(this._kv.classes)) {
      feeds[seqlens] = new ort.Tensor("int32", [length - 1], [1]);
      feeds[total] = new ort.Tensor("int32", [length], []);
    }
    return feeds;
  }

  take(found, more) {
    this.length += more;
    for (const layer of this._kv.layers) {
      this._arrays[layer.past_key] = found[layer.present_key];
      this._arrays[layer.past_value] = found[layer.present_value];
    }
  }

  _grow(capacity) {
    const type = this._kv.dtype;
    const make = type === "int8" ? Int8Array : Float32Array;
    for (const { past_key, past_value, kv_heads, head_dim } of this._kv.layers) {
      for (const name of [past_key, past_value]) {
        const data = new make(kv_heads * capacity * head_dim);
        for (let head = 0; head < kv_heads && this.length; head++) {
          const start = head * this._capacity * head_dim;
          data.set(this._arrays[name].data.subarray(start, start + this.length * head_dim), head * capacity * head_dim);
        }
        this._arrays[name] = new ort.Tensor(type, data, [1, kv_heads, capacity, head_dim]);
      }
    }
    for (const { cos, sin, inverse_frequencies: frequencies, scale } of this._rotary) {
      const angles = Array.from({ length: capacity }, (_, position) => frequencies.map((each) => position * each)).flat();
      const shape = [capacity, frequencies.length];
      this._arrays[cos] = new ort.Tensor("float32", Float32Array.from(angles, (angle) => scale * Math.cos(angle)), shape);
      this._arrays[sin] = new ort.Tensor("float32", Float32Array.from(angles, (angle) => scale * Math.sin(angle)), shape);
    }
    this._capacity = capacity;
  }
}

/** The likeliest id; of several the lowest, as in NumPy. */
export function greedy(logits) {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id] > logits[best]) best = id;
  return best;
}

/** Draws an id: temperature, then top-k, then top-p. */
export function sampler({ temperature = 0.6, topK = 40, topP = 0.9, random = Math.random } = {}) {
  return (logits) => {
    const ids = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b).slice(0, topK);
    const weights = ids.map((id) => Math.exp((logits[id] - logits[ids[0]]) / temperature));
    const all = weights.reduce((sum, weight) => sum + weight, 0);
    let kept = 0;
    for (let sum = 0; kept < ids.length && sum < topP * all; kept++) sum += weights[kept];
    let left = random() * weights.slice(0, kept).reduce((sum, weight) => sum + weight, 0);
    for (let n = 0; n < kept; n++) if ((left -= weights[n]) < 0) return ids[n];
    return ids[0];
  };
}

function refuse(variant, manifest) {
  const problems = [];
  if (variant.kv.kind !== "in_place") problems.push(`its KV cache is of kind ${variant.kv.kind}`);
  if (variant.kv.layers.some((layer) => !("past_key" in layer))) problems.push("its layers keep fixed states");
  if (!manifest.tokenizer) problems.push("it has no tokenizer");
  if (problems.length) throw new Error(`${manifest.name} cannot run here: ${problems.join("; ")}.`);
}

function integers(values, shape) {
  return new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
}

async function download(url, onBytes = () => {}) {
  const answer = await fetch(url, { cache: "no-cache" }); // a bundle that was exported again is not mixed with the old one
  if (!answer.ok) throw new Error(`${url} is not there (${answer.status}): serve the bundle's folder beside this page.`);
  const parts = [];
  for (let reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    onBytes(value.length);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function verify(name, bytes, { size, sha256 }) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (bytes.length !== size || hex !== sha256) throw new Error(`${name} is damaged: copy the bundle again.`);
}
