"use strict";
// The page asks /model what the model takes, and shows what /predict answers. Texts are only ever set as textContent.

const byId = (id) => document.getElementById(id);
const LABELS = { text: "Text", text_pair: "Second text", question: "Question", context: "Paragraph" };
const EXAMPLES = {
  "question-answering": { question: "Who opened the bakery?", context: "Anna Lindqvist opened her bakery in Malmo in 1987. Her brother joined her two years later." },
  "sequence-classification": { text: "A warm and funny film." , text_pair: "The film is good." },
  "token-classification": { text: "Anna Lindqvist visited Malmo with Peter of the United Nations." },
  "masked-lm": { text: "The list [MASK] empty." },
  "encoder": { text: "A text whose vector is shown." },
};
const SHOWN_CLASSES = 20;
const SHOWN_NUMBERS = 8;
let model = null;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const percent = (share) => `${(100 * share).toFixed(1)}%`;

function bars(rows) {
  const table = element("table");
  for (const [label, share] of rows) {
    const bar = element("span", { className: "bar" });
    bar.style.width = percent(share);
    table.append(element("tr", {}, element("td", {}, label), element("td", {}, bar), element("td", {}, percent(share))));
  }
  return table;
}

// Python counts characters, JavaScript UTF-16 units; this splits a text by characters.
function marked(text, spans, mark) {
  const letters = Array.from(text);
  const shown = element("div", { className: "text" });
  let place = 0;
  for (const span of spans) {
    shown.append(letters.slice(place, span.start).join(""), mark(letters.slice(span.start, span.end).join(""), span));
    place = span.end;
  }
  shown.append(letters.slice(place).join(""));
  return shown;
}

const SHOW = {
  "question-answering": (result, input) => {
    const spans = result.answer ? [result] : [];
    const none = result.no_answer_probability;
    const rows = result.answers.map((one) => [one.text, one.probability]);
    if (none !== undefined && none !== null) rows.push(["(no answer)", none]);
    return [
      element("p", {}, element("strong", { id: "answer" }, result.answer || "(no answer in this paragraph)")),
      marked(input.context, spans, (text) => element("mark", {}, text)),
      bars(rows),
    ];
  },
  "sequence-classification": (result) => {
    if (result.value !== undefined) return [element("output", { id: "value" }, result.value.toFixed(4))];
    const rows = Object.entries(result.probabilities).sort((one, other) => other[1] - one[1]);
    const label = result.label ?? (result.labels.join(", ") || "(no label)");
    return [element("p", {}, element("strong", { id: "label" }, label)), bars(rows.slice(0, SHOWN_CLASSES))];
  },
  "token-classification": (result, input) => {
    const types = [...new Set(result.entities.map((entity) => entity.type))].sort();
    const all = [...new Set([...(model.labels || []).map((label) => label.replace(/^[A-Z]-/, "")), ...types])].sort();
    const hue = (type) => Math.round((360 * all.indexOf(type)) / all.length);
    const entity = (text, span) => {
      const made = element("span", { className: "entity", title: percent(span.probability) }, text, element("small", {}, span.type));
      made.style.background = `hsl(${hue(span.type)} 75% 78%)`;
      return made;
    };
    const shown = marked(input.text, result.entities, entity);
    return result.entities.length ? [shown] : [shown, element("p", { className: "note" }, "(no entity)")];
  },
  "masked-lm": (result, input) => {
    const parts = input.text.split("[MASK]");
    const shown = element("div", { className: "text", id: "filled" }, parts[0]);
    result.masks.forEach((fills, number) => {
      const token = fills[0].token;
      const joins = token.startsWith("##");
      if (joins && shown.lastChild.nodeType === Node.TEXT_NODE) shown.lastChild.textContent = shown.lastChild.textContent.trimEnd();
      shown.append(element("mark", {}, joins ? token.slice(2) : token), parts[number + 1]);
    });
    return [shown, ...result.masks.map((fills) => bars(fills.map((fill) => [fill.token, fill.probability])))];
  },
  "encoder": (result) => {
    const numbers = result.vector.slice(0, SHOWN_NUMBERS).map((number) => number.toFixed(4)).join(", ");
    return [element("p", { id: "vector" }, `${result.vector.length} numbers: ${numbers}, ...`)];
  },
};

function problemOf(status, body) {
  if (Array.isArray(body.detail)) return body.detail.map((one) => `${one.loc.at(-1)}: ${one.msg}`).join("\n");
  return `${status}: ${body.detail}`;
}

// Without what the address bar may hold: a key in it is no part of an address that `fetch` takes.
function address(path) {
  return new URL(path, location.origin + location.pathname);
}

function showProblem(error) {
  byId("problem").textContent = error.message;
  byId("problem").hidden = false;
}

// The JSON that an address answers; with a body it is a POST.
async function asked(path, body) {
  const post = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(address(path), body ? post : {});
  const content = await answer.json();
  if (!answer.ok) throw new Error(problemOf(answer.status, content));
  return content;
}

async function send(event) {
  if (event) event.preventDefault();
  const input = {};
  for (const area of byId("form").querySelectorAll("textarea")) {
    if (area.value || area.required) input[area.name] = area.value;
  }
  const button = byId("send");
  button.disabled = true;
  byId("problem").hidden = true;
  const start = performance.now();
  try {
    const body = await asked("predict", { inputs: [input] });
    byId("result").replaceChildren(...SHOW[model.task](body.results[0], input));
    byId("result").hidden = false;
    byId("time").textContent = `${Math.round(performance.now() - start)} ms`;
  } catch (error) {
    byId("result").hidden = true;
    showProblem(error);
  } finally {
    button.disabled = false;
  }
}

function showForm() {
  const form = byId("form");
  for (const [name, needed] of Object.entries(model.inputs)) {
    const area = element("textarea", { name, id: name, rows: name === "context" ? 5 : 2, required: needed, maxLength: model.max_characters });
    area.value = EXAMPLES[model.task][name];
    form.append(element("label", { htmlFor: name }, LABELS[name] + (needed ? "" : " (if the model takes two)")), area);
    if (!needed) area.value = "";
  }
  form.append(element("button", { id: "send" }, "Send"));
  form.addEventListener("submit", send);
  form.hidden = false;
}

async function start() {
  const answer = await fetch(address("model"));
  if (answer.status === 503) {
    byId("summary").textContent = `${(await answer.json()).detail} ...`;
    setTimeout(begin, 1000);
    return;
  }
  model = await answer.json();
  if (!answer.ok) throw new Error(problemOf(answer.status, model));
  byId("name").textContent = model.name;
  byId("summary").textContent = model.summary + (model.labels ? `: ${model.labels.slice(0, SHOWN_CLASSES).join(", ")}` : "");
  showForm();
  if (model.index) await showSearch();
}

function begin() {
  start().catch(showProblem);
}

begin();
