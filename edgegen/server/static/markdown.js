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
  if (renderings.size > MOST_RENDERINGS) renderings.delete(renderings.keys().next().value);
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
// Splits markdown where each part means the same by itself: a list with its items is one, a fence of code is one.
function blocksOf(text) {
  const blocks = [], lines = text.split(/(?<=\n)/);
  let block = "", fence = null, isList = false, isAfterBlank = false;
  const end = () => { if (block) blocks.push(block.trimEnd()); block = ""; isList = isAfterBlank = false; };
  for (const line of lines) {
    const mark = line.match(/^\s*(`{3,}|~{3,})([^`]*|(?<=~)[^\n]*)$/), isIndented = /^\s/.test(line);
    if (fence) {
      block += line;
      if (mark && mark[1].startsWith(fence) && !mark[2].trim()) { fence = null; if (!isList) end(); }
    } else if (!line.trim()) { if (block) block += line; isAfterBlank = true; } else {
      // a line that is not whole yet may become an item of the list
      const isItem = /^([-*+]|\d{1,9}[.)]?)(\s|$)/.test(line);
      if (isAfterBlank && !isIndented && !(isList && isItem) || mark && !isIndented) end();
      isList ||= !block && isItem;
      isAfterBlank = false;
      block += line;
      if (mark) fence = mark[1];
    }
  }
  end();
  return blocks;
}
// Definitions of links, [name]: address "title", count for all of a text; a note, [^name]: words, is no such thing
const DEFINITIONS = /^ {0,3}\[(?!\^)[^\]\n]{1,300}\]: {0,9}(?:<[^<>\n]{0,3000}>|[^\s<]\S{0,3000})(?: {1,9}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'|\([^()\n]{0,300}\)))? {0,9}$/gm;
const FOOTNOTES = /^ {0,3}\[\^[^\]\s]{1,100}\]:/m;
// A finished text: one block where notes at its end belong to all of it, a block of code where it is JSON
function wholeBlocksOf(text) {
  if (isJSON(text)) return ["```json\n" + indented(text.trim()) + "\n```"];
  return FOOTNOTES.test(text) && text.length < MOST_RENDERED ? [text] : withDefinitions(blocksOf(text));
}
function isJSON(text) {
  if (!/^\s*[{[][\s\S]*[}\]]\s*$/.test(text)) return false;
  try { JSON.parse(text); return true; } catch { return false; }
}
// JSON on lines of its own, with its strings and numbers as they were written
function indented(json) {
  let depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  return json.replace(/"(?:\\.|[^"\\])*"|[[{]\s*[\]}]|[[{\]},:]|\s+/g, part => {
    if (part[0] === '"') return part;
    if (!part.trim()) return "";
    if (part.length > 1) return part[0] + part.at(-1);
    if (part === ",") return "," + line();
    if (part === ":") return ": ";
    if ("[{".includes(part)) { depth += 1; return part + line(); }
    depth -= 1;
    return line() + part;
  });
}
function withDefinitions(blocks) {
  const found = blocks.flatMap(block => isFence(block) ? [] : block.match(DEFINITIONS) || []);
  return found.length ? blocks.map(block => block.includes("[") && !isFence(block) ? `${block.trimEnd()}\n\n${found.join("\n")}` : block) : blocks;
}
const isFence = block => /^ {0,3}(`{3}|~{3})/.test(block);
const isOpenFence = block => isFence(block) && !/\n {0,3}(`{3,}|~{3,})\s*$/.test(block);
// Renders the blocks that have changed: of an answer that streams this is the last one, and an open fence needs no server.
async function fill(element, text, isLive) {
  const isOpenJSON = isLive && /^\s*\{\s*("|$)/.test(text);
  const blocks = isOpenJSON ? ["```json\n" + text] : isLive ? blocksOf(text) : wholeBlocksOf(text), parts = element.partSources || [];
  const changed = blocks.map((block, at) => block === parts[at] ? null : isLive && isOpenFence(block) ? openFence(block) : rendered(withoutMath(block)[0]));
  if (isLive) {
    if (element.openBlock && !blocks.includes(element.openBlock)) renderings.delete(withoutMath(element.openBlock)[0]);
    element.openBlock = blocks.at(-1);
  }
  const fresh = await Promise.all(changed);
  if (fresh.some((found, at) => changed[at] && found === null)) { element.classList.add("plain"); element.textContent = text; element.partSources = []; return; }
  element.classList.remove("plain");
  if (!parts.length) element.replaceChildren();
  fresh.forEach((found, at) => {
    if (found === null) return;
    const part = h("div", {class: "part"}, ...(typeof found === "string" ? [] : [found]));
    if (typeof found === "string") part.innerHTML = policy.createHTML(found);
    if (typeof found === "string") putMath(part, withoutMath(blocks[at])[1]);
    dress(part);
    if (at < element.children.length) element.children[at].replaceWith(part); else element.append(part);
  });
  while (element.children.length > blocks.length) element.lastChild.remove();
  element.partSources = blocks;
}
function openFence(block) {
  const [first, ...lines] = block.split("\n");
  return h("pre", {}, h("code", {"data-language": first.replace(/^\s*[`~]+/, "").trim().split(/\s/)[0]}, lines.join("\n")));
}
function dress(part) {
  for (const pre of part.querySelectorAll("pre")) {
    const place = document.createComment("");
    pre.replaceWith(place);
    place.replaceWith(codeBlock(pre));
  }
  // what has a direction of its own does not count for that of a list around it
  for (const element of part.children) if (!element.classList.contains("block")) element.dir = "auto";
}
let painting = false, dirty = null;
async function repaint(c, node) {
  if (c !== current) return;
  if (painting) { dirty = node; return; }
  painting = true;
  const atEnd = isAtEnd(), turn = document.querySelector(`[data-node="${node.id}"]`);
  if (turn) {
    const thoughts = turn.querySelector(".thinking");
    if (node.thoughts && thoughts) { thoughts.hidden = false; await fill(thoughts.lastChild, node.thoughts, true); }
    if (node.text) await fill(turn.querySelector(".said"), node.text, true);
    if (atEnd) toEnd();
  }
  setTimeout(() => { painting = false; if (dirty) { const next = dirty; dirty = null; if (next.live) repaint(c, next); } }, 150);
}
