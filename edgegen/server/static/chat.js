"use strict";
// Chat: a tree of messages, of which one path is shown

const childrenOf = (c, parent) => Object.values(c.nodes).filter(node => node.parent === parent);
const holder = (c, parent) => parent === null ? c : c.nodes[parent];
function path(c) {
  const found = [];
  for (let key = c.chosen; key && c.nodes[key]; key = c.nodes[key].chosen) found.push(c.nodes[key]);
  return found;
}
function add(c, parent, role, text, files = []) {
  const node = {id: id(), parent, role, text, files, thoughts: "", stats: "", changed: Date.now(), chosen: null};
  c.nodes[node.id] = node;
  holder(c, parent).chosen = node.id;
  return node;
}
function remove(c, node) {
  delete c.nodes[node.id];
  c.removed.push(node.id);
  const others = childrenOf(c, node.parent);
  holder(c, node.parent).chosen = others.length ? others.at(-1).id : null;
}
// The conversation up to a message, as the server takes it
function messagesTo(c, key) {
  const messages = [];
  for (; key; key = c.nodes[key].parent) messages.unshift({role: c.nodes[key].role, content: contentOf(c.nodes[key])});
  if (c.system.trim()) messages.unshift({role: "system", content: c.system});
  return messages;
}
// Answers a message; with a node that has broken off, goes on with its text
async function answer(c, parent, begun) {
  if (job) return;
  let body;
  try { body = {...options(), ...thinkingOptions()}; } catch (error) { showError(error.message); return; }
  if (c !== current) open(c);
  const node = begun || add(c, parent, "assistant", ""), messages = messagesTo(c, begun ? begun.id : parent);
  node.live = true; node.open = false;
  const going = run("/v1/chat/completions", {...body, messages}, c, text => { node.text += text; repaint(c, node); }, text => { node.thoughts += text; repaint(c, node); }, () => answer(c, parent, c.nodes[node.id] && node.text ? node : undefined));
  paint(); toEnd();
  const done = await going;
  delete node.live;
  node.changed = Date.now();
  node.stats = done.stats;
  node.open = done.open && !!node.text;
  await Promise.all(wholeBlocksOf(node.text).map(block => rendered(withoutMath(block)[0])));
  const atEnd = isAtEnd();
  if (!node.text && !node.thoughts && done.failed) remove(c, node);
  save(c); paintIf(c);
  if (atEnd && c === current) toEnd();
}
function send(text) {
  if (!text.trim() && !attached.length || job) return false;
  try { options(); thinkingOptions(); } catch (error) { showError(error.message); return false; }
  const shown = path(current), last = shown.at(-1);
  const node = add(current, last ? last.id : null, "user", text, attached);
  attached = [];
  save(current);
  answer(current, node.id);
  paint(); toEnd();
  return true;
}
function regenerate() {
  if (job) return;
  if (current.kind === "text") return textAgain();
  const last = path(current).at(-1);
  if (last) answer(current, last.role === "assistant" ? last.parent : last.id);
}
function edit(node) {
  const turn = document.querySelector(`[data-node="${node.id}"]`);
  const box = h("textarea", {"aria-label": "Edit the message", rows: Math.min(10, node.text.split("\n").length + 1), dir: "auto"});
  box.value = node.text;
  const leave = () => { paint(); const button = document.querySelector(`[data-node="${node.id}"] [data-edit]`); if (button) button.focus(); };
  const submit = () => {
    if (!box.value.trim() && !node.files.length || job) return;
    const c = current, branch = add(c, node.parent, "user", box.value, node.files);
    save(c); paint(); answer(c, branch.id); $("message").focus();
  };
  box.addEventListener("keydown", event => {
    if (event.key === "Escape") { event.stopPropagation(); leave(); }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  });
  turn.replaceChildren(h("div", {class: "edit"}, box, h("div", {}, h("button", {onclick: leave}, "Cancel"), h("button", {class: "primary", onclick: submit}, "Send as a branch"))));
  box.focus();
}
function turnTo(node, step) {
  const siblings = childrenOf(current, node.parent), next = siblings[siblings.indexOf(node) + step];
  if (!next || job) return;
  holder(current, node.parent).chosen = next.id;
  save(current); paint();
  const button = document.querySelector(`[data-node="${next.id}"] [data-step="${step}"]`);
  if (button && !button.disabled) button.focus();
  const all = childrenOf(current, next.parent);
  say(`Branch ${all.indexOf(next) + 1} of ${all.length}`);
}
function stepBranch(step) {
  if (current.kind === "text") return stepTake(step);
  const forked = path(current).filter(node => childrenOf(current, node.parent).length > 1).at(-1);
  if (forked) turnTo(forked, step);
}

const isAtEnd = () => $("main").scrollHeight - $("main").scrollTop - $("main").clientHeight < 90;
const toEnd = () => { $("main").scrollTop = $("main").scrollHeight; };
async function copy(text, button) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else { // without https the clipboard is reached in the old way only
      const box = h("textarea", {class: "sr"});
      box.value = text; document.body.append(box); box.select(); document.execCommand("copy"); box.remove(); button.focus();
    }
    say("Copied.");
  } catch { say("This browser did not allow copying."); }
}

// Painting

function paint() {
  if (!current) return;
  const chat = current.kind === "chat";
  $("chat").hidden = $("composer").hidden = !chat;
  $("text").hidden = chat;
  $("view-chat").setAttribute("aria-pressed", String(chat));
  $("view-text").setAttribute("aria-pressed", String(!chat));
  $("system").value = current.system;
  $("send-key").textContent = chat ? "Enter" : "Ctrl+Enter";
  $("send-word").textContent = chat ? "sends" : "continues";
  if (chat) paintChat(); else paintText();
  paintBusy(); paintGauge(); paintThinking(); paintFiles(); paintPresets(); paintList();
}
const paintIf = c => { if (c === current) paint(); else paintBusy(); };
const noteOf = name => props.note && props.model === name ? [h("p", {class: "note"}, `${name} is ${props.note}.`)] : [];
function paintChat() {
  const shown = path(current), name = $("model").value;
  $("chat-welcome").hidden = shown.length > 0;
  $("chat-welcome").replaceChildren(
    h("h2", {}, models.length ? `Chat with ${name}` : "edgegen"),
    ...noteOf(name),
    h("p", {}, props.chat_template === "" ? "This model has no chat template: it continues texts better than it answers. Try “Continue”." : "The model runs where this page comes from; your text goes nowhere else."),
    h("div", {class: "chips"}, ...QUESTIONS.map(text => h("button", {onclick: () => send(text)}, text))));
  $("log").replaceChildren(...shown.map(turnOf));
}
function turnOf(node) {
  const mine = node.role === "user", said = h("div", {class: "said rendered" + (node.live ? " live" : ""), dir: "auto"}), turn = h("li", {class: "turn " + node.role, "data-node": node.id});
  turn.setAttribute("aria-busy", String(!!node.live));
  turn.append(h("span", {class: "sr"}, mine ? "You: " : "Model: "));
  if (!mine) {
    const thinking = h("details", {class: "thinking", hidden: !node.thoughts}, h("summary", {}, "Thinking"), h("div", {class: "rendered plain", dir: "auto"}, node.thoughts));
    if (node.thoughts) fill(thinking.lastChild, node.thoughts, node.live);
    turn.append(thinking);
  }
  if (node.live) turn.append(h("p", {class: "reading"}, readingOf(current)));
  turn.append(said);
  if (mine) said.append(...filesOf(node), node.text);
  else if (node.text) { said.textContent = node.text; said.classList.add("plain"); fill(said, node.text, node.live); }
  const siblings = childrenOf(current, node.parent), at = siblings.indexOf(node), tools = h("div", {class: "tools"});
  if (siblings.length > 1) tools.append(h("span", {class: "branch", role: "group", "aria-label": "Branches"},
    h("button", {"aria-label": "Branch before", "data-step": -1, disabled: at === 0, onclick: () => turnTo(node, -1)}, icon("back")), `${at + 1} / ${siblings.length}`,
    h("button", {"aria-label": "Branch after", "data-step": 1, disabled: at === siblings.length - 1, onclick: () => turnTo(node, 1)}, icon("next"))));
  if (!node.live) {
    const copyButton = h("button", {"aria-label": "Copy the message", title: "Copy", onclick: () => copy(node.text, copyButton)}, icon("copy"));
    tools.append(copyButton);
    if (mine) tools.append(h("button", {"aria-label": "Edit the message", title: "Edit as a branch", "data-edit": true, onclick: () => { if (!job) edit(node); }}, icon("edit")));
    else tools.append(h("button", {"aria-label": "Regenerate the answer", title: "Regenerate", onclick: () => answer(current, node.parent)}, icon("again")));
    if (mine && !node.chosen && !job && !retry) tools.append(h("button", {class: "outline again", title: "The message has no answer", onclick: () => answer(current, node.id)}, "Try again"));
    if (!mine && node.open && !node.chosen && !job) tools.append(h("button", {class: "outline again", title: "The answer broke off: go on", onclick: () => answer(current, node.parent, node)}, "Continue"));
    if (node.stats) tools.append(h("span", {class: "stats"}, node.stats));
  }
  turn.append(tools);
  return turn;
}
function paintBusy() {
  const busy = !!job, chat = $("send"), text = $("go");
  for (const [button, word] of [[chat, "Send"], [text, "Continue"]]) {
    button.replaceChildren(icon(busy ? "stop" : "send"), h("span", {}, busy ? "Stop" : word));
    button.title = busy ? "Stop (Esc)" : "";
  }
  $("paper").readOnly = busy && job.conversation === current;
  $("text-again").disabled = $("undo").disabled = busy || !current || !current.base;
  $("view-chat").disabled = $("view-text").disabled = busy;
  $("model").disabled = busy || models.length < 2;
}
function paintGauge() {
  const total = props.context, used = current.used || 0;
  $("gauge").hidden = !total;
  if (!total) return;
  $("meter").max = total; $("meter").high = total * 0.85; $("meter").value = Math.min(used, total);
  $("context-text").textContent = `Context ${used} / ${total}`;
  $("meter").title = `${used} of ${total} tokens of the context`;
}
