"use strict";
// Models that the server may pull by name: its catalogue, and what is on its way

let offers = [];
const pulling = new Map(); // by name: {stop, told, error}
const bytes = count => count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${Math.round(count / 1e6)} MB`;
const parameters = count => count >= 1e9 ? `${(count / 1e9).toFixed(1)}B` : `${Math.round(count / 1e6)}M`;

async function listOffers() {
  try {
    const told = await (await ask("/models/catalogue")).json();
    offers = told.pulls_allowed ? told.data : [];
  } catch { offers = []; } // the server says elsewhere what is wrong
  $("get-model").hidden = !offers.length;
  paintOffers();
}
async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const found = (rest + value).split("\n");
      rest = found.pop();
      for (const line of found) if (line) yield JSON.parse(line);
    }
  } finally { reader.cancel().catch(() => {}); }
}
async function pull(name) {
  const stop = new AbortController(), own = {stop, told: {status: "starting"}, error: ""};
  pulling.set(name, own);
  paintOffers();
  try {
    let last = {};
    for await (last of lines(await ask("/api/pull", {model: name, stream: true}, stop.signal))) {
      if (last.error) throw new Error(last.error);
      own.told = last;
      paintProgress(name);
    }
    if (last.status !== "success") throw new Error("The connection ended before the model was there. Get it again: what was read is kept.");
    pulling.delete(name);
    say(`${name} is there.`);
    await listModels();
    $("model").disabled = models.length < 2;
  } catch (error) {
    if (error.name === "AbortError") pulling.delete(name);
    else { own.error = error.message; own.stop = null; say(error.message); }
  }
  await listOffers();
}
function use(name) {
  $("offers").close();
  $("model").value = name;
  $("model").dispatchEvent(new Event("change"));
}
function paintProgress(name) {
  const row = document.querySelector(`#offers [data-bundle="${CSS.escape(name)}"]`), bar = row && row.querySelector("progress");
  if (!bar) return;
  const {told} = pulling.get(name), share = told.total ? told.completed / told.total : null;
  if (share === null) bar.removeAttribute("value"); else bar.value = share;
  row.querySelector(".stage").textContent = share === null ? told.status : `${told.status}, ${bytes(told.completed)} of ${bytes(told.total)}`;
}
function bundleRow(bundle) {
  const name = bundle.model, own = pulling.get(name), running = own && own.stop;
  const needs = h("span", {class: "hint"}, `${bundle.quantization}: ${bytes(bundle.disk_bytes)} on disk, ${bytes(bundle.memory_bytes)} of memory`);
  const row = h("div", {class: "bundle", "data-bundle": name}, needs);
  if (running) row.append(h("button", {class: "outline", onclick: () => own.stop.abort(), "aria-label": `Stop getting ${name}`}, "Stop"), h("progress", {max: 1, "aria-label": `Getting ${name}`}), h("small", {class: "stage"}));
  else if (models.includes(name)) row.append(h("button", {class: "primary", onclick: () => use(name), "aria-label": `Use ${name}`}, "Use"));
  else row.append(h("button", {class: "outline", onclick: () => pull(name), "aria-label": `Get ${name}`}, "Get"));
  if (own && own.error) row.append(h("p", {class: "problem"}, own.error));
  return row;
}
function paintOffers() {
  const focused = document.activeElement && document.activeElement.closest("#offers [data-bundle]");
  $("offers-list").replaceChildren(...offers.map(offer => h("li", {},
    h("p", {}, h("strong", {}, offer.name), h("span", {class: "hint"}, ` ${parameters(offer.parameters)} parameters · ${offer.licence}${offer.gated ? " · the server needs a token of the hub" : ""}`)),
    ...offer.bundles.map(bundleRow))));
  for (const name of pulling.keys()) paintProgress(name);
  if (focused) { const again = document.querySelector(`#offers [data-bundle="${CSS.escape(focused.dataset.bundle)}"] button`); if (again) again.focus(); }
}
$("get-model").addEventListener("click", () => { paintOffers(); $("offers").showModal(); listOffers(); });
$("key").addEventListener("change", listOffers);
listOffers();
