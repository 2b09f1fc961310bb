"use strict";
// Continuing a text: parts by you and by the model; takes are continuations of the same base

const textOf = c => c.parts.map(part => part.text).join("");
function paintText() {
  const c = current, empty = !textOf(c) && !job;
  $("text-welcome").hidden = !empty;
  $("text-welcome").replaceChildren(
    h("h2", {}, models.length ? `Continue a text with ${$("model").value}` : "edgegen"),
    ...noteOf($("model").value),
    h("p", {}, "Write a first sentence, or take one of these. The model runs where this page comes from; your text goes nowhere else."),
    h("div", {class: "chips"}, ...PROMPTS.map(text => h("button", {onclick: () => { c.parts = [{by: "you", text}]; continueText(); }}, text + (/[.!?]$/.test(text) ? "" : " …")))));
  if ($("paper").value !== textOf(c)) $("paper").value = textOf(c);
  paintUnder();
  $("text-reading").textContent = readingOf(c);
  const many = c.base && c.takes.length > 1;
  $("takes").replaceChildren(...(many ? [h("button", {"aria-label": "Branch before", disabled: c.take === 0 || !!job, onclick: () => stepTake(-1)}, icon("back")), `${c.take + 1} / ${c.takes.length}`,
    h("button", {"aria-label": "Branch after", disabled: c.take === c.takes.length - 1 || !!job, onclick: () => stepTake(1)}, icon("next"))] : []));
  $("text-stats").textContent = c.base && c.takes[c.take] ? c.takes[c.take].stats : "";
}
function paintUnder() {
  $("under").replaceChildren(...current.parts.map(part => part.by === "model" ? h("mark", {}, part.text) : part.text), "\u200b");
}
function typed() {
  const c = current, now = $("paper").value, before = textOf(c);
  let head = 0, tail = 0;
  while (head < Math.min(now.length, before.length) && now[head] === before[head]) head++;
  while (tail < Math.min(now.length, before.length) - head && now.at(-1 - tail) === before.at(-1 - tail)) tail++;
  const slice = (from, to) => {
    const found = [];
    let at = 0;
    for (const part of c.parts) {
      const text = part.text.slice(Math.max(0, from - at), Math.max(0, to - at));
      if (text) found.push({by: part.by, text});
      at += part.text.length;
    }
    return found;
  };
  c.parts = joined([...slice(0, head), {by: "you", text: now.slice(head, now.length - tail)}, ...slice(before.length - tail, before.length)]);
  c.base = null; c.takes = []; c.take = 0;
  paintUnder(); paintBusy();
  $("text-welcome").hidden = !!now;
  $("takes").replaceChildren(); $("text-stats").textContent = "";
  if (now) save(c); else { all.delete(c.id); localStorage.removeItem(STORE + c.id); paintList(); }
}
function joined(parts) {
  const found = [];
  for (const part of parts) if (part.text) { if (found.length && found.at(-1).by === part.by) found.at(-1).text += part.text; else found.push({...part}); }
  return found;
}
async function continueText(base) {
  const c = current;
  if (job || !textOf(c).trim()) { if (!job) $("paper").focus(); return; }
  let body;
  try { body = options(); } catch (error) { showError(error.message); return; }
  if (!base) { base = c.parts; c.takes = []; }
  const before = {base: c.base, take: c.take};
  const take = {text: "", stats: ""}, prompt = base.map(part => part.text).join("");
  c.base = base; c.takes.push(take); c.take = c.takes.length - 1;
  const show = () => { c.parts = joined([...base, {by: "model", text: take.text}]); };
  show();
  const going = run("/v1/completions", {...body, prompt}, c, text => {
    const atEnd = isAtEnd();
    take.text += text; show();
    if (c === current) { $("paper").value = textOf(c); paintUnder(); if (atEnd) toEnd(); }
  }, () => {}, () => continueText(c.base && c.takes.length ? base : undefined));
  paint();
  const done = await going;
  take.stats = done.stats;
  const atEnd = isAtEnd();
  if (!take.text && done.failed) { c.takes.pop(); c.base = c.takes.length ? base : null; c.take = Math.max(0, Math.min(before.take, c.takes.length - 1)); c.parts = c.base ? joined([...base, {by: "model", text: c.takes[c.take].text}]) : base; }
  save(c); paintIf(c);
  if (atEnd && c === current) toEnd();
}
function textAgain() { if (!job && current.base) { current.parts = current.base; continueText(current.base); } }
function stepTake(step) {
  const c = current;
  if (job || !c.base || !c.takes[c.take + step]) return;
  c.take += step;
  c.parts = joined([...c.base, {by: "model", text: c.takes[c.take].text}]);
  save(c); paint();
  say(`Branch ${c.take + 1} of ${c.takes.length}`);
}
function undo() {
  const c = current;
  if (job || !c.base) return;
  c.parts = c.base; c.base = null; c.takes = []; c.take = 0;
  save(c); paint(); $("paper").focus();
}
