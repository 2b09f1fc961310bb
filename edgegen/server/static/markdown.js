"use strict";
// Markdown: rendered and cleaned by the server, in batches; without it a message is plain text

const renderings = new Map();
let waiting = null;
function rendered(text) {
  if (renderings.has(text)) return renderings.get(text);
  const promise = new Promise(resolve => {
    if (!waiting) { waiting = []; queueMicrotask(flush); }
    waiting.push({text, resolve});
  });
  renderings.set(text, promise);
  if (renderings.size > 300) renderings.delete(renderings.keys().next().value);
  return promise;
}
async function flush() {
  const all = waiting;
  waiting = null;
  for (let at = 0; at < all.length;) {
    const batch = [];
    for (let size = 0; at < all.length && batch.length < 60 && (!batch.length || size + all[at].text.length < MOST_RENDERED); at++) { size += all[at].text.length; batch.push(all[at]); }
    let html = [];
    try { html = (await (await ask("/render", {texts: batch.map(one => one.text)})).json()).html; }
    catch { for (const one of batch) renderings.delete(one.text); }
    batch.forEach((one, i) => one.resolve(html[i] == null ? null : html[i]));
  }
}
async function fill(element, text) {
  const html = await rendered(text);
  if (html === null) { element.classList.add("plain"); element.textContent = text; return; }
  element.classList.remove("plain");
  element.innerHTML = policy.createHTML(html);
  for (const pre of element.querySelectorAll("pre")) {
    const code = pre.textContent, button = h("button", {"aria-label": "Copy the code", onclick: () => copy(code, button)}, "Copy"), box = h("div", {class: "block"});
    pre.replaceWith(box);
    pre.tabIndex = 0;
    box.append(pre, button);
  }
}
let painting = false, dirty = null;
async function repaint(c, node) {
  if (c !== current) return;
  if (painting) { dirty = node; return; }
  painting = true;
  const atEnd = isAtEnd(), turn = document.querySelector(`[data-node="${node.id}"]`);
  if (turn) {
    const thoughts = turn.querySelector(".thinking");
    if (node.thoughts && thoughts) { thoughts.hidden = false; thoughts.lastChild.textContent = node.thoughts; }
    const before = node.text;
    await fill(turn.querySelector(".said"), before);
    renderings.delete(before);
    if (atEnd) toEnd();
  }
  setTimeout(() => { painting = false; if (dirty) { const next = dirty; dirty = null; if (next.live) repaint(c, next); } }, 150);
}
