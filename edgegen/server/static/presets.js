"use strict";
// Presets: a system prompt and what is set for all conversations (sampling, thinking, constraints) under a name

const PRESETS = "edgegen.presets", MOST_PRESETS = 100, PRESET_TEXTS = ["stops", "thinking", "thoughts", "schema", "choices", "grammar"];
let presets = [];
function checkedPreset(value) {
  const isText = text => typeof text === "string";
  if (!value || !isText(value.name) || !value.name.trim()) return null;
  const numbers = Object.fromEntries(NUMBERS.map(([name]) => [name, value.numbers && value.numbers[name]]).filter(([, number]) => isText(number) && number));
  const texts = Object.fromEntries(["system", ...PRESET_TEXTS].map(name => [name, isText(value[name]) ? value[name] : ""]));
  return {name: value.name.slice(0, 60), numbers, ...texts};
}
function readPresets() {
  try { const kept = JSON.parse(localStorage.getItem(PRESETS) || "[]"); presets = (Array.isArray(kept) ? kept : []).map(checkedPreset).filter(Boolean).slice(0, MOST_PRESETS); } catch { presets = []; }
}
const presetOfNow = name => checkedPreset({...settings, name, system: current ? current.system : ""});
function paintPresets() {
  const isNow = preset => JSON.stringify(preset) === JSON.stringify(presetOfNow(preset.name)), fitting = presets.filter(isNow);
  const chosen = fitting.find(preset => preset.name === settings.preset) || fitting[0];
  $("preset").replaceChildren(h("option", {value: ""}, presets.length ? "None" : "None is saved yet"), ...presets.map(preset => h("option", {value: preset.name}, preset.name)));
  $("preset").value = chosen ? chosen.name : "";
  $("preset").disabled = !presets.length;
  $("drop-preset").disabled = !chosen;
}
// Those of the same name are replaced.
function addPresets(added) {
  const names = added.map(preset => preset.name), kept = [...presets.filter(preset => !names.includes(preset.name)), ...added];
  if (kept.length > MOST_PRESETS) { showError(`${MOST_PRESETS} presets are kept at most: delete one.`); return false; }
  kept.sort((a, b) => a.name.localeCompare(b.name));
  if (!keep(PRESETS, kept)) return false;
  presets = kept; paintPresets();
  return true;
}
function savePreset() {
  const name = $("preset-name").value.trim();
  if (!name) { $("preset-name").focus(); return; }
  if (!addPresets([presetOfNow(name)])) return;
  settings.preset = name; keepSettings();
  $("preset-name").value = "";
  paintPresets();
  say(`${name} is saved.`);
}
function choosePreset() {
  const preset = presets.find(one => one.name === $("preset").value);
  if (preset) {
    current.system = $("system").value = preset.system;
    settings.preset = preset.name; settings.numbers = {...preset.numbers};
    for (const name of PRESET_TEXTS) settings[name] = preset[name];
    showSettings(); paintThinking(); keepSettings(); save(current);
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
  for (const name of ["system", "stop-strings", "sampling", "most-thoughts", "schema", "choices", "grammar"]) on(name, "input", paintPresets);
  on("thinking", "change", paintPresets); on("reset", "click", paintPresets);
}
