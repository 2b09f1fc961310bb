"use strict";
const $ = id => document.getElementById(id);
const policy = window.trustedTypes ? window.trustedTypes.createPolicy("rendered", {createHTML: html => html}) : {createHTML: html => html};
const NUMBERS = [ // name, label, the option that the model has of it, attributes
  ["temperature", "Temperature", "temperature", {min: 0, max: 2, step: 0.05}],
  ["max_tokens", "Max tokens", "max_new_tokens", {min: 1, step: 1}],
  ["top_p", "Top-p", "top_p", {min: 0, max: 1, step: 0.01}],
  ["top_k", "Top-k", "top_k", {min: 0, step: 1}],
  ["min_p", "Min-p", "min_p", {min: 0, max: 1, step: 0.01}],
  ["repetition_penalty", "Repetition penalty", "repetition_penalty", {min: 0.1, step: 0.05}],
  ["frequency_penalty", "Frequency penalty", "frequency_penalty", {min: -2, max: 2, step: 0.1}],
  ["presence_penalty", "Presence penalty", "presence_penalty", {min: -2, max: 2, step: 0.1}],
  ["seed", "Seed", "seed", {min: 0, step: 1}],
];
const SHORTCUTS = [
  ["Enter", "Send the message"], ["Shift+Enter", "New line in a message"], ["Ctrl+Enter", "Continue the text"], ["Esc", "Stop; close what is open"],
  ["Alt+N", "New conversation"], ["Alt+R", "Regenerate the last answer"], ["Alt+E", "Edit your last message"], ["Alt+← Alt+→", "The branch before or after"],
  ["Alt+S", "Settings"], ["Alt+C", "Conversations"], ["Alt+V", "Chat or continue"], ["/", "To the text box"], ["Alt+I", "About this model"], ["?", "These shortcuts"],
];
const PROMPTS = ["Once upon a time, there was a little dragon who", "Lily found a tiny key in the garden.", "One day, a robot and a bird", "The old tree had a secret."];
const QUESTIONS = ["Explain how a rainbow forms, in three sentences.", "Write a short poem about the sea at night.", "Give me a table of five fruits and their colors."];
const STORE = "edgegen.conversation.", SETTINGS = "edgegen.settings";
const MOST_RENDERED = 60000, MOST_RENDERINGS = 5000;

let listed = [], models = [], props = {}, all = new Map(), current = null, job = null, retry = null;
let settings = {theme: "auto", model: "", side: true, panel: false, numbers: {}, stops: "", schema: "", thinking: "", thoughts: "", choices: "", grammar: "", preset: ""};

// Elements, storage, messages

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}
function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", "#i-" + name);
  svg.append(use);
  return svg;
}
const id = () => "c" + Array.from(crypto.getRandomValues(new Uint8Array(9)), byte => byte.toString(36).padStart(2, "0")).join("");
const say = text => { $("status").textContent = text; };
function showError(text, again, word = "Try again") {
  retry = again || null;
  $("retry").textContent = word;
  $("alert-text").textContent = text;
  $("retry").hidden = !retry;
  $("alert").hidden = false;
}
const hideError = () => { $("alert").hidden = true; $("alert-text").textContent = ""; retry = null; };
function keep(key, value) {
  try { localStorage.setItem(key, JSON.stringify(value)); return true; }
  catch { showError("This browser keeps no more: export conversations and delete some."); return false; }
}
const keepSettings = () => keep(SETTINGS, settings);
function stored(id) {
  try { return checked(JSON.parse(localStorage.getItem(STORE + id))); } catch { return null; }
}
// Another tab may have the same conversation open: what it has kept since is taken in first
function save(conversation) {
  if (conversation.dropped || isEmpty(conversation)) return;
  const theirs = stored(conversation.id);
  if (theirs && theirs.updated !== conversation.kept) {
    if (conversation.kind === "chat") merge(conversation, theirs);
    else if (textOf(theirs) !== textOf(conversation)) { all.set(theirs.id, theirs); conversation.id = id(); } // both texts are kept
  }
  conversation.updated = conversation.kept = Date.now();
  all.set(conversation.id, conversation);
  keep(STORE + conversation.id, conversation);
  if (conversation === current && settings.open !== conversation.id) { settings.open = conversation.id; keepSettings(); }
  paintList();
}
const isEmpty = conversation => conversation.kind === "chat" ? !Object.keys(conversation.nodes).length && !conversation.system : !textOf(conversation);
function fresh(kind) { return {version: 1, id: id(), kind, updated: Date.now(), system: "", nodes: {}, chosen: null, parts: [], base: null, takes: [], take: 0, used: 0, title: "", removed: [], kept: 0}; }

// Takes another tab's messages into a conversation: all nodes of both, the later form of a node, ways where there was none
function merge(c, theirs) {
  const removed = new Set([...c.removed, ...theirs.removed]);
  for (const node of Object.values(theirs.nodes)) {
    const mine = c.nodes[node.id];
    if (removed.has(node.id) || node.parent !== null && !c.nodes[node.parent]) continue;
    if (!mine) c.nodes[node.id] = {...node, chosen: null};
    else if (!mine.live && node.changed > mine.changed) Object.assign(mine, {...node, chosen: mine.chosen});
  }
  for (const node of Object.values(c.nodes)) if (removed.has(node.id) && !node.live) delete c.nodes[node.id];
  for (const own of [c, ...Object.values(c.nodes)]) {
    if (c.nodes[own.chosen]) continue;
    const parent = own === c ? null : own.id, child = (own === c ? theirs : theirs.nodes[own.id] || {}).chosen;
    const children = childrenOf(c, parent);
    own.chosen = children.some(node => node.id === child) ? child : children.length ? children.at(-1).id : null;
  }
  c.removed = [...removed];
  if (theirs.updated > c.updated) { c.title = theirs.title; c.system = theirs.system; c.used = theirs.used; c.updated = theirs.updated; }
}
// Another tab has kept something
function keptElsewhere({key, newValue}) {
  if (key === SETTINGS && newValue) {
    const {theme, numbers, stops, schema, thinking, thoughts, choices, grammar, preset} = JSON.parse(newValue);
    Object.assign(settings, {theme, numbers, stops, schema, thinking, thoughts, choices, grammar, preset});
    paintTheme(); paintThinking();
    if (!$("panel").contains(document.activeElement)) showSettings();
  } else if (key === PRESETS) { readPresets(); paintPresets(); }
  else if (key && key.startsWith(STORE)) {
    const c = all.get(key.slice(STORE.length)), theirs = newValue && stored(key.slice(STORE.length));
    if (theirs && c) takeIn(c, theirs);
    else if (theirs) all.set(theirs.id, theirs);
    else if (c && !newValue) { all.delete(c.id); c.dropped = true; if (c === current) { stop(); open(fresh(c.kind)); say("The conversation was deleted in another tab."); } }
    paintList();
  }
}
function takeIn(c, theirs) {
  const atEnd = isAtEnd(), isEditing = document.querySelector(".edit textarea");
  if (c.kind === "chat") merge(c, theirs);
  else if (!(job && job.conversation === c)) Object.assign(c, theirs);
  else return;
  c.kept = theirs.updated;
  if (c !== current || isEditing) return;
  if (job && job.conversation === c) paintList(); else paint();
  if (atEnd) toEnd();
}

// What came from a file or the storage is a conversation of ours, or nothing
function checked(value) {
  const isText = text => typeof text === "string", c = fresh("chat");
  if (!value || typeof value !== "object" || !["chat", "text"].includes(value.kind) || !isText(value.id) || !/^[a-z][a-z0-9]{1,79}$/.test(value.id)) return null;
  c.id = value.id; c.kind = value.kind; c.system = isText(value.system) ? value.system : ""; c.title = isText(value.title) ? value.title.slice(0, 200) : ""; c.updated = c.kept = Number(value.updated) || Date.now(); c.removed = Array.isArray(value.removed) ? value.removed.filter(isText) : []; c.used = Number(value.used) || 0;
  for (const node of Object.values(value.nodes || {})) {
    if (!node || !isText(node.id) || !/^[a-z][a-z0-9]{1,79}$/.test(node.id) || !["user", "assistant"].includes(node.role) || !isText(node.text)) return null;
    if (node.parent !== null && !Object.hasOwn(c.nodes, node.parent)) return null; // parents come first, so there is no circle
    c.nodes[node.id] = {id: node.id, parent: node.parent, role: node.role, text: node.text, thoughts: isText(node.thoughts) ? node.thoughts : "", files: checkedFiles(node.files), stats: isText(node.stats) ? node.stats : "", open: node.open === true, changed: Number(node.changed) || 0, chosen: null};
  }
  for (const owner of [[null, value], ...Object.values(value.nodes || {}).map(node => [node.id, node])]) {
    const own = owner[0] === null ? c : c.nodes[owner[0]], child = owner[1].chosen;
    const children = Object.values(c.nodes).filter(node => node.parent === owner[0]);
    own.chosen = children.some(node => node.id === child) ? child : children.length ? children.at(-1).id : null;
  }
  const parts = list => Array.isArray(list) && list.every(part => part && isText(part.text)) ? list.map(part => ({by: part.by === "model" ? "model" : "you", text: part.text})) : null;
  c.parts = parts(value.parts) || [];
  c.base = parts(value.base);
  c.takes = c.base && Array.isArray(value.takes) ? value.takes.filter(take => take && isText(take.text)).map(take => ({text: take.text, stats: isText(take.stats) ? take.stats : ""})) : [];
  if (!c.takes.length) c.base = null;
  c.take = c.takes[value.take] ? value.take : Math.max(0, c.takes.length - 1);
  return isEmpty(c) ? null : c;
}
function readStorage() {
  try { settings = {...settings, ...JSON.parse(localStorage.getItem(SETTINGS) || "{}")}; } catch { /* the defaults */ }
  for (const key of Object.keys(localStorage).filter(key => key.startsWith(STORE))) {
    try { const found = checked(JSON.parse(localStorage.getItem(key))); if (found) all.set(found.id, found); } catch { /* not ours */ }
  }
}
