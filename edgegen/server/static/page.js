"use strict";
// Settings, theme, keys

const narrow = () => matchMedia("(max-width: 860px)").matches;
function toggle(which, isOpen) {
  if (isOpen) document.body.dataset[which] = "open"; else delete document.body.dataset[which];
  $("toggle-" + which).setAttribute("aria-expanded", String(isOpen));
  if (!narrow()) { settings[which] = isOpen; keepSettings(); }
}
function toggleSide(isOpen = document.body.dataset.side !== "open") { if (narrow() && isOpen) toggle("panel", false); toggle("side", isOpen); if (isOpen && narrow()) $("new").focus(); }
function togglePanel(isOpen = document.body.dataset.panel !== "open") { if (narrow() && isOpen) toggle("side", false); toggle("panel", isOpen); if (isOpen) $(narrow() ? "close-panel" : "system").focus(); }
function paintTheme() {
  if (settings.theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = settings.theme;
  const words = {auto: "as the system", light: "light", dark: "dark"};
  $("theme").setAttribute("aria-label", `Colors: ${words[settings.theme]}`);
  $("theme").title = `Colors: ${words[settings.theme]}`;
}
function setView(kind) {
  if (job || !current || current.kind === kind) return;
  open(isEmpty(current) ? fresh(kind) : [...all.values()].filter(c => c.kind === kind).sort((a, b) => b.updated - a.updated)[0] || fresh(kind));
}
function showSampling() {
  for (const [name] of NUMBERS) $("n-" + name).value = typeof settings.numbers[name] === "string" ? settings.numbers[name] : "";
  $("stop-strings").value = settings.stops;
}
function showSettings() {
  showSampling();
  $("schema").value = settings.schema; $("choices").value = settings.choices; $("grammar").value = settings.grammar; $("most-thoughts").value = settings.thoughts;
  markSchema();
}
function buildPanel() {
  for (const [name, label, , attributes] of NUMBERS) {
    const input = h("input", {id: "n-" + name, type: "number", inputmode: "decimal", ...attributes});
    if (attributes.step !== 1) input.step = "any";
    input.addEventListener("input", () => { settings.numbers[name] = input.value; keepSettings(); });
    $("sampling").append(h("div", {class: "field"}, h("label", {for: "n-" + name}, label), input));
  }
  showSettings();
  $("keys-list").append(...SHORTCUTS.flatMap(([keys, what]) => [h("dt", {}, ...keys.split(" ").map(key => h("kbd", {}, key))), h("dd", {}, what)]));
}
function start() {
  readStorage();
  paintTheme(); buildPanel();
  try { $("key").value = sessionStorage.getItem("edgegen.key") || ""; } catch { /* none kept */ }
  toggle("side", !narrow() && settings.side); toggle("panel", !narrow() && settings.panel);
  if (all.has(settings.open)) current = all.get(settings.open);
  if (current) open(current);
  connect();
  const on = (name, event, action) => $(name).addEventListener(event, action);
  on("composer", "submit", event => { event.preventDefault(); if (job) stop(); else if (send($("message").value)) $("message").value = ""; $("message").focus(); });
  on("message", "keydown", event => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!job) $("composer").requestSubmit(); } });
  on("paper", "input", typed);
  on("paper", "keydown", event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); continueText(); } });
  on("go", "click", () => job ? stop() : continueText());
  on("text-again", "click", textAgain); on("undo", "click", undo);
  on("search", "input", paintList);
  on("new", "click", () => { open(fresh(current ? current.kind : kindOfModel())); narrow() && toggleSide(false); });
  on("toggle-side", "click", () => toggleSide()); on("toggle-panel", "click", () => togglePanel());
  on("close-panel", "click", () => { togglePanel(false); $("toggle-panel").focus(); });
  on("shade", "click", () => { toggleSide(false); togglePanel(false); });
  on("view-chat", "click", () => setView("chat")); on("view-text", "click", () => setView("text"));
  on("theme", "click", () => { settings.theme = {auto: "light", light: "dark", dark: "auto"}[settings.theme] || "auto"; paintTheme(); keepSettings(); say($("theme").title); });
  on("about", "click", showAbout);
  on("help", "click", () => $("keys").showModal());
  on("dismiss", "click", () => { hideError(); paint(); });
  on("retry", "click", () => { const again = retry; hideError(); if (again) again(); });
  on("model", "change", () => { settings.model = $("model").value; keepSettings(); paintAbout(); describe().catch(error => fail(error, describe)); });
  on("system", "input", () => { current.system = $("system").value; save(current); });
  on("thinking", "change", () => { settings.thinking = $("thinking").value; keepSettings(); paintThinking(); });
  on("most-thoughts", "input", () => { settings.thoughts = $("most-thoughts").value; keepSettings(); });
  on("stop-strings", "input", () => { settings.stops = $("stop-strings").value; keepSettings(); });
  on("schema", "input", () => { settings.schema = $("schema").value; markSchema(); keepSettings(); });
  for (const name of ["choices", "grammar"]) on(name, "input", () => { settings[name] = $(name).value; keepSettings(); });
  on("key", "change", () => { try { sessionStorage.setItem("edgegen.key", $("key").value); } catch { /* not kept */ } connect(); });
  on("reset", "click", () => {
    settings.numbers = {}; settings.stops = "";
    showSampling(); keepSettings(); say("The sampling settings are the model's own.");
  });
  on("export", "click", exportAll); on("import", "click", () => $("import-file").click());
  on("import-file", "change", async () => { const [file] = $("import-file").files; if (file) await importFile(file); $("import-file").value = ""; });
  startAttaching(on); startPresets(on);
  document.addEventListener("keydown", keys);
  addEventListener("storage", keptElsewhere);
  addEventListener("pagehide", () => { if (job && job.conversation) save(job.conversation); });
}
function keys(event) {
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "Escape") {
    if (narrow() && (document.body.dataset.side || document.body.dataset.panel)) { toggleSide(false); togglePanel(false); }
    else stop();
  } else if (event.code.startsWith("Arrow") && typing && typing.value) { /* moves in the text */
  } else if (event.altKey && !event.ctrlKey && !event.metaKey) {
    const actions = {
      KeyN: () => $("new").click(), KeyR: regenerate, KeyS: () => togglePanel(), KeyC: () => toggleSide(), KeyI: showAbout,
      KeyV: () => setView(current.kind === "chat" ? "text" : "chat"),
      KeyE: () => { const mine = current.kind === "chat" && path(current).filter(node => node.role === "user").at(-1); if (mine && !job) edit(mine); },
      ArrowLeft: () => stepBranch(-1), ArrowRight: () => stepBranch(1),
    };
    if (Object.hasOwn(actions, event.code)) { event.preventDefault(); actions[event.code](); }
  } else if (!typing && !event.ctrlKey && !event.metaKey && event.key === "?") { event.preventDefault(); $("keys").showModal(); }
  else if (!typing && !event.ctrlKey && !event.metaKey && event.key === "/") { event.preventDefault(); (current.kind === "chat" ? $("message") : $("paper")).focus(); }
}
start();
