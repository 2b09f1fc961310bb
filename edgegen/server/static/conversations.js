"use strict";
const firstWords = node => !node ? "Empty chat" : node.text.trim() || (node.files || []).map(file => file.name).join(", ");
function titleOf(c) {
  if (c.title) return c.title;
  const text = c.kind === "text" ? textOf(c) : firstWords(path(c)[0]);
  return text.trim().replace(/\s+/g, " ").slice(0, 200) || "Untitled";
}
function paintList() {
  const sought = $("search").value.trim().toLowerCase(), found = c => !sought || `${titleOf(c)}\n${Object.values(c.nodes).map(node => node.text).join("\n")}\n${textOf(c)}`.toLowerCase().includes(sought);
  const sorted = [...all.values()].filter(found).sort((a, b) => b.updated - a.updated);
  $("search").hidden = all.size < 2; $("none").hidden = !sought || sorted.length > 0;
  $("list").replaceChildren(...sorted.map(c => {
    const title = titleOf(c);
    return h("li", {class: c === current ? "now" : ""},
      h("button", {class: "open", "aria-current": c === current ? "true" : null, title, onclick: () => { open(c); narrow() && toggleSide(false); }}, h("span", {dir: "auto"}, title)),
      h("button", {class: "drop icon", "aria-label": `Rename “${title}”`, title: "Rename", onclick: event => rename(c, event.target.closest("li"))}, icon("edit")),
      h("button", {class: "drop icon", "aria-label": `Delete “${title}”`, onclick: () => drop(c, title)}, icon("close")));
  }));
  $("export").disabled = !all.size;
}
function rename(c, item) {
  const box = h("input", {"aria-label": "Name of the conversation", value: titleOf(c), maxlength: 200, dir: "auto"}), leave = isKept => {
    if (isKept && box.value.trim() !== titleOf(c)) { c.title = box.value.trim(); save(c); }
    paintList();
  };
  box.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === "Escape") { event.preventDefault(); event.stopPropagation(); leave(event.key === "Enter"); } });
  box.addEventListener("blur", () => { if (box.isConnected) leave(true); });
  item.replaceChildren(box);
  box.select(); box.focus();
}
function open(c) {
  current = c;
  settings.open = all.has(c.id) ? c.id : "";
  keepSettings();
  $("rate").textContent = "";
  paint();
  toEnd();
  if (!narrow()) (c.kind === "chat" ? $("message") : $("paper")).focus({preventScroll: true});
}
function askFirst(title, action) {
  $("sure-title").textContent = `Delete “${title}”?`;
  $("sure").returnValue = "";
  $("sure").onclose = () => { if ($("sure").returnValue === "yes") action(); };
  $("sure").showModal();
}
function drop(c, title) {
  askFirst(title, () => {
    if (job && job.conversation === c) { stop(); job.conversation = null; }
    all.delete(c.id);
    localStorage.removeItem(STORE + c.id);
    c.dropped = true;
    if (c === current) open(fresh(c.kind)); else paintList();
    say("Deleted.");
  });
}

// Export and import

function exportAll() {
  const data = JSON.stringify({format: "edgegen-conversations", version: 1, conversations: [...all.values()], presets}, null, 1);
  const link = h("a", {href: URL.createObjectURL(new Blob([data], {type: "application/json"})), download: `edgegen-conversations-${new Date().toISOString().slice(0, 10)}.json`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
async function importFile(file) {
  let found;
  try { found = JSON.parse(await file.text()); } catch { showError(`${file.name} is not a JSON file.`); return; }
  if (!found || found.format !== "edgegen-conversations" || !Array.isArray(found.conversations)) { showError(`${file.name} has no conversations of edgegen.`); return; }
  const good = found.conversations.map(checked).filter(Boolean);
  for (const c of good) {
    if (all.has(c.id) && JSON.stringify(all.get(c.id).nodes) + textOf(all.get(c.id)) !== JSON.stringify(c.nodes) + textOf(c)) c.id = id(); // both are kept
    all.set(c.id, c);
    if (!keep(STORE + c.id, c)) break;
  }
  if (good.length) open(good[0]);
  const given = Array.isArray(found.presets) ? found.presets : [], added = given.map(checkedPreset).filter(Boolean);
  const bad = found.conversations.length - good.length + given.length - added.length;
  if (bad) showError(`${file.name}: ${bad} of ${found.conversations.length + given.length} conversations and presets are damaged and were left out.`);
  if (added.length && !addPresets(added)) added.length = 0;
  say(`${good.length} conversations imported${added.length ? `, ${added.length} presets` : ""}.`);
}
