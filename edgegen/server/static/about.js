"use strict";
// About this model: what it is, and what quantization cost

const isNumber = value => typeof value === "number" && isFinite(value);
const percent = (share, digits) => `${(share * 100).toFixed(digits)} %`;
function countWords(count) {
  for (const [unit, word] of [[1e9, "billion"], [1e6, "million"]]) if (count >= unit) return `${Number((count / unit).toPrecision(3))} ${word}`;
  return String(count);
}
function facts() {
  return [
    ["Context length", isNumber(props.context) && `${props.context.toLocaleString("en")} tokens`, "The longest text, prompt and answer together."],
    ["Parameters", isNumber(props.parameters) && countWords(props.parameters), "The numbers that the model has learned."],
    ["Quantization", props.quantization, "How the weights are stored."],
  ];
}
// Figures of the parity report, each with what it means
function parityFigures(parity) {
  const {top1_agreement: top1, mean_kl: kl, perplexity_change: change, perplexity_change_error: error} = parity || {};
  const noise = isNumber(error) && Math.abs(change) <= 2 * error ? "by no more than the noise of the measurement" : "with a minus, better";
  return [
    ["Top-1 agreement", isNumber(top1) && percent(top1, 1), "How often the likeliest next token is the one of the unquantized model."],
    ["KL divergence", isNumber(kl) && `${kl.toPrecision(2)} nats`, "How far its predictions are from the unquantized model's, on average: 0 is the same."],
    ["Perplexity", isNumber(change) && (change < 0 ? "−" : "+") + percent(Math.abs(change), 2), `How much worse it predicts a text than the unquantized model: ${noise}.`],
  ];
}
const rowsOf = figures => figures.filter(([, value]) => value).flatMap(([name, value, meaning]) => [h("dt", {}, name), h("dd", {}, h("b", {}, value), h("small", {}, meaning))]);
function paintAbout() { $("about").disabled = props.model !== $("model").value; }
function showAbout() {
  if ($("about").disabled) return;
  const figures = rowsOf(parityFigures(props.parity)), {tokens, text} = props.parity || {};
  $("about-title").textContent = `About ${props.model}`;
  $("about-facts").replaceChildren(...rowsOf(facts()));
  $("about-note").textContent = props.note ? `${props.model} is ${props.note}.` : "";
  $("about-parity").replaceChildren(...figures);
  $("about-measured").textContent = !figures.length ? "This model has no parity report." : isNumber(tokens) ? `Measured on ${tokens} tokens of ${text}.` : "";
  $("about-dialog").showModal();
  $("about-dialog").scrollTop = 0; // its button, which has the focus, is at the end
}
