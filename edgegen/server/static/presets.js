"use strict";
// Presets: a system prompt and sampling settings under a name

const PRESETS = "edgegen.presets", MOST_PRESETS = 100;
let presets = [];
function checkedPreset(value) {
  const isText = text => typeof text === "string";
  if (!value || !isText(value.name) || !value.name.trim()) return null;
  const numbers = Object.fromEntries(NUMBERS.map(([name]) => [name, value.numbers && value.numbers[name]]).filter(([, number]) => isText(number) && number));
  return {name: value.name.slice(0, 60), system: isText(value.system) ? value.system : "", numbers, stops: isText(value.stops) ? value.stops : ""};
}
function readPresets() {
  try { const kept = JSON.parse(localStorage.getItem(PRESETS) || "[]"); presets = (Array.isArray(kept) ? kept : []).map(checkedPreset).filter(Boolean).slice(0, MOST_PRESETS); } catch { presets = []; }
}
const presetOfNow = name => checkedPreset({name, system: current ? current.system : "", numbers: settings.numbers, stops: settings.stops});
function paintPresets() {
  const isNow = preset => JSON.stringify(preset) === JSON.stringify(presetOfNow(preset.name)), fitting = presets.filter(isNow);
  const chosen = fitting.find(preset => preset.name === settings.preset) || fitting[0];
  $("preset").replaceChildren(h("option", {value: ""}, presets.length ? "None" : "None is saved yet"), ...presets.map(preset => h("option", {value: preset.name}, preset.name)));
  $("preset").value = chosen ? chosen.name : "";
  $("preset").disabled = !presets.length;
  $("drop-preset").disabled = !chosen;
}
function savePreset() {
  const name = $("preset-name").value.trim();
  if (!name) { $("preset-name").focus(); return; }
  const others = presets.filter(preset => preset.name !== name);
  if (others.length >= MOST_PRESETS) { showError(`${MOST_PRESETS} presets are kept at most: delete one.`); return; }
  const kept = [...others, presetOfNow(name)].sort((a, b) => a.name.localeCompare(b.name));
  if (!keep(PRESETS, kept)) return;
  presets = kept; settings.preset = name; keepSettings();
  $("preset-name").value = "";
  paintPresets();
  say(`${name} is saved.`);
}
function choosePreset() {
  const preset = presets.find(one => one.name === $("preset").value);
  if (preset) {
    current.system = $("system").value = preset.system;
    settings.preset = preset.name; settings.stops = preset.stops; settings.numbers = {...preset.numbers};
    showSampling(); keepSettings(); save(current);
    say(`${preset.name} is chosen.`);
  }
  paintPresets();
}
function dropPreset() {
  const name = $("preset").value;
  askFirst(name, () => { presets = presets.filter(preset => preset.name !== name); keep(PRESETS, presets); paintPresets(); $("preset-name").focus(); say("Deleted."); });
}
function startPresets(on) {
  readPresets(); paintPresets();
  on("preset", "change", choosePreset); on("save-preset", "click", savePreset); on("drop-preset", "click", dropPreset);
  on("preset-name", "keydown", event => { if (event.key === "Enter") { event.preventDefault(); savePreset(); } });
  for (const name of ["system", "stop-strings", "sampling"]) on(name, "input", paintPresets);
  on("reset", "click", paintPresets);
}
