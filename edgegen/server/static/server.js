"use strict";
// The server

function headers(extra) {
  const key = $("key").value.trim();
  return {...extra, ...(key ? {Authorization: "Bearer " + key} : {})};
}
async function ask(path, body, signal) {
  let response;
  try {
    response = await fetch(path, body === undefined ? {headers: headers(), signal} : {method: "POST", headers: headers({"Content-Type": "application/json"}), body: JSON.stringify(body), signal});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer: it was stopped, or the connection is down.");
  }
  if (response.ok) return response;
  let said = {};
  try { said = (await response.json()).error || {}; } catch { /* no JSON */ }
  const error = problemOf(said, `The server answered with status ${response.status}: its log may say why.`);
  if (response.status === 401) error.needsKey = true;
  if (response.status === 503 && response.headers.get("Retry-After")) error.message += ` Try again in ${response.headers.get("Retry-After")} s.`;
  throw error;
}
// What a reader of this page can do, where the server's own sentence is for those who started it
const PROBLEMS = {
  invalid_api_key: "This server asks for an API key: write it into the settings, under Server.",
  host_not_allowed: "The server does not answer to the name in this page's address: open the page by the server's IP address, or ask the person who runs it to allow the name.",
  origin_not_allowed: "The server does not answer to the name in this page's address: open the page by the server's IP address, or ask the person who runs it to allow the name.",
  model_too_large: "This model needs more memory than the server has for models: choose a smaller one.",
  model_load_failed: "The server could not load this model: choose another one. Its log says why.",
  pulls_not_allowed: "This server gets no new models: ask the person who runs it.",
};
// What the server says of a problem, and what to do where it is the context
function problemOf(said, otherwise) {
  const message = typeof said === "string" ? said : PROBLEMS[said.code] || said.message, error = new Error(message || otherwise);
  error.isFull = said.code === "context_length_exceeded";
  if (error.isFull) error.message = `The context is full: start a new conversation, or shorten the text. ${error.message.replace(/^prompt is too long: /, "").replace(/^./, first => first.toUpperCase())}`;
  return error;
}
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {value, done} = await reader.read().catch(error => { if (error.name === "AbortError") throw error; return {done: true}; });
      if (done) throw new Error("The connection ended before the answer did: the server was stopped, or the connection is down.");
      rest += value;
      const lines = rest.split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw problemOf(event.error, "The server broke the answer off: its log may say why.");
        yield event;
      }
    }
  } finally { reader.cancel().catch(() => {}); }
}
async function connect() {
  try {
    await listModels();
    $("model").disabled = models.length < 2;
    hideError();
    await describe(!current);
  } catch (error) { fail(error, connect); if (!current) open(fresh("chat")); }
}
// The picker says which models are not loaded; the server may have unloaded one for room.
async function listModels(signal) {
  listed = (await (await ask("/models", undefined, signal)).json()).data;
  models = listed.map(model => model.id);
  const shown = $("model").value, chosen = models.includes(shown) ? shown : settings.model;
  $("model").replaceChildren(...listed.map(model => h("option", {value: model.id}, model.id + stateOf(model.status.value))));
  if (models.includes(chosen)) $("model").value = chosen;
}
const stateOf = status => status === "loaded" ? "" : status === "loading" ? " – loading…" : " – not loaded";
// Loads a model that is not loaded, and shows that for as long as it takes.
async function load(name, signal) {
  await listModels(signal);
  const found = listed.find(model => model.id === name), shown = () => $("model").value === name;
  if (!found || found.status.value === "loaded") return;
  if (!current) open(fresh("chat"));
  found.status.value = "loading";
  for (const option of $("model").options) if (option.value === name) option.textContent = name + stateOf("loading");
  $("model").setAttribute("aria-busy", "true");
  if (shown()) { $("loading").textContent = `Loading ${name}…`; $("loading").title = "The server is reading the model into memory."; paintAbout(); if (!job) paint(); }
  say(`Loading ${name}.`);
  try {
    await ask("/models/load", {model: name}, signal);
    say(`${name} is loaded.`);
  } finally {
    if (shown()) { $("model").removeAttribute("aria-busy"); $("loading").textContent = $("loading").title = ""; }
    await listModels().catch(() => {});
  }
}
async function describe(first) {
  const name = $("model").value;
  await load(name);
  if (name !== $("model").value) return;
  const known = await (await ask("/props?model=" + encodeURIComponent(name))).json();
  if (name !== $("model").value) return;
  props = known;
  paintAbout(); paintThinking(); paintOwn(); recountFiles();
  if (first || (isEmpty(current) && !job)) open(fresh(kindOfModel()));
  else { paint(); if (!job) recount(current); }
}
// The model's own settings, in the fields that say nothing else
function paintOwn() {
  const own = props.generation_options || {}, greedy = own.do_sample === false, sampled = ["top_p", "top_k", "min_p"];
  for (const [name, , option] of NUMBERS) {
    const value = own[option], input = $("n-" + name);
    if (name === "seed") input.placeholder = value == null ? "random" : value;
    else if (name === "max_tokens") input.placeholder = "no limit";
    else if (name === "temperature" && greedy) input.placeholder = "0 (greedy)";
    else input.placeholder = value == null ? (greedy && sampled.includes(name) ? "off" : "model's") : value;
  }
}
const kindOfModel = () => props.chat_template === "" ? "text" : "chat";
function fail(error, again) {
  if (error.isFull) showError(error.message, () => $("new").click(), "New conversation");
  else showError(error.message, again);
  if (error.needsKey) { togglePanel(true); $("key").focus(); }
}

// What is asked of the model

function options() {
  const body = {};
  for (const [name, label] of NUMBERS) {
    const input = $("n-" + name);
    if (!input.checkValidity()) { togglePanel(true); input.focus(); throw new Error(`${label}: ${input.validationMessage}`); }
    if (input.value !== "") body[name] = Number(input.value);
  }
  const most = props.max_tokens || props.context;
  if (body.max_tokens && most) body.max_tokens = Math.min(body.max_tokens, most);
  body.max_tokens ??= -1; // all that fits: /v1/completions has a small default
  const stops = $("stop-strings").value.split("\n").filter(Boolean);
  if (stops.length) body.stop = stops;
  const schema = readSchema(), choices = $("choices").value.split("\n").map(line => line.trim()).filter(Boolean), grammar = $("grammar").value.trim();
  if (!!schema + !!choices.length + !!grammar > 1) { togglePanel(true); throw new Error("JSON Schema, choices and grammar each say what the answer must be: keep one of them."); }
  if (choices.length) body.guided_choice = choices;
  if (grammar) body.grammar = grammar;
  if (schema) body.response_format = {type: "json_schema", json_schema: {name: "answer", schema, strict: true}};
  return {...body, model: $("model").value, stream: true, stream_options: {include_usage: true}};
}
// The choices that the model's template has; "" leaves it to the model
function thinkingChoices() {
  const can = props.thinking || {}, efforts = can.efforts || [], levels = efforts.length ? efforts : can.switch ? ["on"] : [];
  return [...(can.switch ? ["off"] : []), ...levels];
}
function paintThinking() {
  const choices = thinkingChoices(), select = $("thinking");
  select.hidden = !choices.length || !current || current.kind !== "chat";
  select.replaceChildren(...["", ...choices].map(choice => h("option", {value: choice}, `Thinking: ${choice || "auto"}`)));
  select.value = choices.includes(settings.thinking) ? settings.thinking : "";
  select.classList.toggle("set", select.value !== "");
  $("thoughts").hidden = !(props.thinking && props.thinking.thinks);
}
function thinkingOptions() {
  const choice = thinkingChoices().includes(settings.thinking) ? settings.thinking : "", most = $("most-thoughts"), body = {};
  if (choice === "on" || choice === "off") body.thinking = choice === "on";
  else if (choice) body.reasoning_effort = choice;
  if ($("thoughts").hidden || most.value === "") return body;
  if (!most.checkValidity()) { togglePanel(true); most.focus(); throw new Error(`Max thinking tokens: ${most.validationMessage}`); }
  return {...body, max_thinking_tokens: Number(most.value)};
}
function readSchema() {
  const text = $("schema").value.trim();
  if (!text) return null;
  try { return JSON.parse(text); }
  catch (error) { togglePanel(true); $("schema").focus(); throw new Error(`The JSON Schema is not JSON: ${error.message}`); }
}
function markSchema() {
  const text = $("schema").value.trim();
  let problem = "";
  try { if (text) JSON.parse(text); } catch (error) { problem = error.message; }
  $("schema").setCustomValidity(problem);
  $("schema").setAttribute("aria-invalid", String(!!problem));
  $("schema-state").textContent = problem ? `Not JSON: ${problem}` : text ? "The answer will be JSON of this schema." : "With a schema here, the answer is JSON that is valid by it.";
}
// How much of the prompt the model has read, less what was cached; small prompts are read before it matters.
// Nothing has been read, and no time has passed: other requests are before this one
const waits = read => read.processed === 0 && read.time_ms === 0;
const readingWords = () => !(job && job.isSlow && job.read) ? "" : waits(job.read) ? "Waiting for other requests" : `Reading ${Math.floor(100 * (job.read.processed - job.read.cache) / Math.max(1, job.read.total - job.read.cache))}%`;
const readingOf = c => job && job.conversation === c ? readingWords() : "";
function paintReading() {
  if (job && job.conversation === current) paintGauge();
  for (const place of document.querySelectorAll("[aria-busy=true] .reading, #text-reading")) place.textContent = readingOf(current);
}
// Runs one request; onText gets each piece. Returns the words about it, or null where it failed without a piece.
async function run(path, body, conversation, onText, onThought, again) {
  job = {controller: new AbortController(), conversation};
  hideError(); paintBusy();
  const mine = job;
  let slow = 0, began = 0, first = 0, dropped = 0, usage = null, timings = null, finish = "", error = null;
  const rateOf = () => timings && timings.predicted_n > 1 && timings.predicted_ms ? `${((timings.predicted_n - 1) * 1000 / timings.predicted_ms).toFixed(1)} tokens/s` : "";
  try {
    await load(body.model, job.controller.signal);
    say("The model is writing.");
    began = performance.now();
    slow = setTimeout(() => { mine.isSlow = true; paintReading(); }, 1000);
    const response = await ask(path, {...body, return_progress: true, timings_per_token: true}, mine.controller.signal);
    dropped = Number(response.headers.get("Edgegen-Dropped-Messages")) || 0;
    for await (const event of events(response)) {
      if (event.usage) usage = event.usage;
      if (event.prompt_progress) { mine.read = event.prompt_progress; conversation.used = mine.read.processed; paintReading(); }
      if (event.timings) {
        timings = event.timings;
        conversation.used = timings.cache_n + timings.prompt_n + timings.predicted_n;
        if (conversation === current) { $("rate").textContent = rateOf(); paintGauge(); }
      }
      const choice = event.choices && event.choices[0];
      if (!choice) continue;
      const delta = choice.delta || {}, text = choice.text || delta.content || "";
      if (delta.reasoning_content) onThought(delta.reasoning_content);
      if (text || delta.reasoning_content) first ||= performance.now();
      if (first && mine.read) { mine.read = null; paintReading(); }
      if (text) onText(text);
      if (choice.finish_reason) finish = choice.finish_reason;
    }
  } catch (problem) { error = problem; }
  clearTimeout(slow);
  job = null;
  paintReading();
  const stopped = error && error.name === "AbortError", tokens = usage ? usage.completion_tokens : timings ? timings.predicted_n : 0, rate = rateOf(), parts = [];
  if (usage) conversation.used = usage.prompt_tokens + usage.completion_tokens;
  if (tokens) parts.push(`${tokens} tokens`);
  if (rate) { parts.push(rate); if (conversation === current) $("rate").textContent = rate; }
  if (first) parts.push(`first after ${((first - began) / 1000).toFixed(2)} s`);
  const cached = usage && usage.prompt_tokens_details && usage.prompt_tokens_details.cached_tokens;
  if (cached) parts.push(`${cached} cached`);
  if (dropped) parts.push(`the model has not read the oldest ${dropped === 1 ? "message" : dropped + " messages"}: the context is full`);
  if (stopped) parts.push("stopped by you");
  else if (error) parts.push("broken off");
  else if (finish === "length") parts.push(props.context && conversation.used >= props.context ? "the context is full: start a new conversation" : "token limit reached");
  if (error && !stopped) fail(error, again);
  say(stopped ? "Stopped." : error ? "" : "The answer is complete.");
  if (!usage) recount(conversation);
  return {stats: parts.join(" · "), failed: !!error && !stopped, open: !!error || finish === "length"};
}
// The tokens of a conversation, where no answer has told them: after Stop, and with another model
async function recount(c) {
  const name = $("model").value, last = path(c).at(-1);
  try {
    let used = 0;
    if (c.kind === "text") used = textOf(c) ? (await (await ask("/tokenize", {model: name, prompt: textOf(c)})).json()).count : 0;
    else if (last) {
      const messages = messagesTo(c, last.id).filter(message => message.role !== "system" && message.content), system = c.system.trim();
      used = (await (await ask("/v1/messages/count_tokens", {model: name, messages, ...(system ? {system} : {})})).json()).input_tokens;
    }
    if (name !== $("model").value) return;
    c.used = used;
    if (c === current) paintGauge();
  } catch { /* the next answer tells them */ }
}
const stop = () => { if (job) job.controller.abort(); };
