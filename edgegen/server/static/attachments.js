"use strict";
// Text files that go with a message

const MOST_FILE_BYTES = 500000; // a browser keeps about five million characters for a page
let attached = [];
const sizeOf = bytes => bytes < 1000 ? `${bytes} bytes` : `${(bytes / 1000).toFixed(bytes < 10000 ? 1 : 0)} kB`;
const tokensOf = file => file.tokens == null ? "" : ` · ${file.tokens} tokens`;
// The text of a file; throws a sentence where it is none, or too much of it
async function readText(file) {
  if (file.size > MOST_FILE_BYTES) throw new Error(`${file.name} has ${sizeOf(file.size)}: at most ${sizeOf(MOST_FILE_BYTES)} can be attached.`);
  let text;
  try { text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer()); } catch { text = "\0"; }
  if (text.includes("\0")) throw new Error(`${file.name} is no text in UTF-8: only text files can be attached.`);
  return text;
}
async function countTokens(file) {
  try { file.tokens = (await (await ask("/tokenize", {model: $("model").value, content: file.text})).json()).count; } catch { file.tokens = null; }
}
async function attach(files) {
  if (current.kind !== "chat") { showError("Files can be attached to messages in Chat only."); return; }
  const problems = [];
  for (const one of files) {
    try {
      const file = {name: one.name.replace(/[\s`]+/g, " ").slice(0, 200), size: one.size, text: await readText(one), tokens: null};
      await countTokens(file);
      if (props.context && file.tokens > props.context) throw new Error(`${file.name} has ${file.tokens} tokens, and the context of this model is ${props.context}: attach a part of it.`);
      attached.push(file);
      say(`${file.name} is attached.`);
    } catch (error) { problems.push(error.message); }
  }
  if (problems.length) showError(problems.join(" "));
  paintFiles();
}
async function recountFiles() {
  await Promise.all(attached.map(countTokens));
  paintFiles();
}
function paintFiles() {
  $("files").hidden = !attached.length || !current || current.kind !== "chat";
  $("files").replaceChildren(...attached.map(file => h("li", {}, h("span", {}, file.name), h("small", {}, sizeOf(file.size) + tokensOf(file)),
    h("button", {class: "icon", type: "button", "aria-label": `Remove ${file.name}`, onclick: () => { attached = attached.filter(one => one !== file); paintFiles(); $("message").focus(); }}, icon("close")))));
}
// What the model reads: the files, each in a fence that nothing in it closes, and then the words
function contentOf(node) {
  const blocks = (node.files || []).map(file => {
    const fence = "`".repeat(Math.max(3, ...(file.text.match(/`{3,}/g) || []).map(run => run.length + 1))), extension = /\.([\w+-]{1,12})$/.exec(file.name);
    return `File ${file.name}:\n\n${fence}${extension ? extension[1] : ""}\n${file.text.replace(/\n?$/, "\n")}${fence}`;
  });
  return [...blocks, node.text].filter(Boolean).join("\n\n");
}
const filesOf = node => (node.files || []).map(file => h("details", {class: "file"}, h("summary", {}, file.name, h("small", {}, sizeOf(file.size) + tokensOf(file))), h("pre", {tabindex: 0}, file.text)));
const checkedFiles = files => Array.isArray(files) ? files.filter(file => file && typeof file.name === "string" && typeof file.text === "string").map(file => ({name: file.name.slice(0, 200), text: file.text, size: Number(file.size) || 0, tokens: Number.isInteger(file.tokens) ? file.tokens : null})) : [];
function startAttaching(on) {
  on("attach", "click", () => $("attach-file").click());
  on("attach-file", "change", async () => { await attach([...$("attach-file").files]); $("attach-file").value = ""; $("message").focus(); });
  on("message", "paste", event => { if (event.clipboardData.files.length) { event.preventDefault(); attach([...event.clipboardData.files]); } });
  const hasFiles = event => event.dataTransfer && [...event.dataTransfer.types].includes("Files"), mark = isOver => document.body.toggleAttribute("data-dropping", isOver);
  document.addEventListener("dragover", event => { if (hasFiles(event)) { event.preventDefault(); mark(true); } });
  document.addEventListener("dragleave", event => { if (!event.relatedTarget) mark(false); });
  document.addEventListener("drop", event => { mark(false); if (hasFiles(event)) { event.preventDefault(); attach([...event.dataTransfer.files]); } });
}
