// The page: it sends prompts to the worker, and shows what comes. `?bundle=URL` and `?kv=float32` choose the bundle.
const asked = new URLSearchParams(location.search);
const worker = new Worker("worker.js", { type: "module" });
const [prompt, most, sample, go, answer, progress, status] = ["prompt", "most", "sample", "go", "answer", "progress", "status"].map(
  (id) => document.getElementById(id),
);
let request = 0;
let running = false;

function show(text, failed = false) {
  status.textContent = text;
  status.classList.toggle("failed", failed);
}

function end() {
  running = false;
  go.textContent = "Generate";
}

const MESSAGES = {
  progress({ done, total }) {
    progress.max = total;
    progress.value = done;
    show(`Loading ${(done / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB`);
  },
  loaded({ name, maxContext }) {
    progress.hidden = true;
    go.disabled = false;
    show(`${name} is loaded: ${maxContext} tokens of context`);
  },
  text({ text }) {
    answer.textContent = prompt.value + text;
  },
  done({ ids, stopped, firstToken, tokensPerSecond }) {
    end();
    const said = stopped ? "Stopped" : "Done";
    show(`${said}: ${ids.length} tokens, the first after ${firstToken.toFixed(2)} s, then ${tokensPerSecond.toFixed(0)} a second`);
  },
  failed({ message }) {
    end();
    progress.hidden = true;
    show(message, true);
  },
};

worker.onmessage = ({ data }) => {
  if (data.request === undefined || data.request === request) MESSAGES[data.kind](data);
};
worker.onerror = () => MESSAGES.failed({ message: "The worker did not start: run `npm install` in this folder, and serve it." });

document.querySelector("form").onsubmit = (event) => {
  event.preventDefault();
  if (running) {
    worker.postMessage({ kind: "stop" });
    return;
  }
  running = true;
  go.textContent = "Stop";
  answer.textContent = prompt.value;
  show("Generating …");
  const maxNewTokens = most.valueAsNumber || 100;
  worker.postMessage({ kind: "generate", request: ++request, prompt: prompt.value, maxNewTokens, sample: sample.checked });
};
prompt.onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
};

worker.postMessage({ kind: "load", url: asked.get("bundle") ?? "bundle/", kv: asked.get("kv") });
