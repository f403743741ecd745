"use strict";
// The search box of a served index: asks /index for its columns and /search for passages. page.js has the shared parts.

const RANKINGS = { hybrid: "words and vectors", words: "words", vectors: "vectors" };
const SHOWN_COLUMNS = 12;
const RANGE = /^\s*(-?\d+(?:\.\d+)?)?\s*\.\.\s*(-?\d+(?:\.\d+)?)?\s*$/;

// "red" is a value, "1990..1995", "1990.." and "..1995" are ranges of numbers.
function filterOf(text) {
  const range = RANGE.exec(text);
  if (!range || (range[1] === undefined && range[2] === undefined)) return text.trim();
  const filter = {};
  if (range[1] !== undefined) filter.from = Number(range[1]);
  if (range[2] !== undefined) filter.to = Number(range[2]);
  return filter;
}

function placeOf(hit) {
  if (!hit.source) return hit.id;
  return hit.source + (hit.line === null ? "" : `, line ${hit.line}`);
}

function hitShown(hit) {
  const head = element("p", { className: "place" }, element("strong", {}, placeOf(hit)), element("small", {}, hit.score.toFixed(2)));
  const text = marked(hit.text, [hit.sentence], (sentence) => element("mark", {}, sentence));
  const values = Object.entries(hit.columns).map(([name, value]) => `${name}: ${value}`);
  const columns = values.length ? [element("p", { className: "note" }, values.join("  \u00b7  "))] : [];
  return element("li", {}, head, text, ...columns);
}

async function sendSearch(event) {
  event.preventDefault();
  const filters = {};
  for (const input of byId("search").querySelectorAll("input[data-column]")) {
    if (input.value.trim()) filters[input.dataset.column] = filterOf(input.value);
  }
  const body = { query: byId("query").value, top_k: 10, ranking: byId("ranking").value, filters };
  byId("problem").hidden = true;
  const start = performance.now();
  try {
    const hits = (await asked("search", body)).hits;
    const list = element("ol", {}, ...hits.map(hitShown));
    byId("hits").replaceChildren(hits.length ? list : element("p", { className: "note" }, "Nothing was found."));
    byId("time").textContent = `${Math.round(performance.now() - start)} ms`;
  } catch (error) {
    byId("hits").replaceChildren();
    showProblem(error);
  }
}

function filterFields(columns) {
  if (!columns.length) return [];
  const fields = columns.slice(0, SHOWN_COLUMNS).map((name) => {
    const input = element("input", { type: "text", placeholder: "value, or 1990..1995" });
    input.dataset.column = name;
    return element("label", {}, name, input);
  });
  return [element("details", {}, element("summary", {}, "Filters"), element("div", { className: "filters" }, ...fields))];
}

async function showSearch() {
  const index = await asked("index");
  const ranking = element("select", { id: "ranking", ariaLabel: "ranked by" });
  for (const [value, label] of Object.entries(RANKINGS)) ranking.append(element("option", { value }, label));
  const query = element("input", { type: "search", id: "query", required: true, maxLength: model.max_characters, placeholder: "What do you look for?", ariaLabel: "query" });
  const row = element("div", { className: "row" }, query, ranking, element("button", { id: "find" }, "Search"));
  const files = index.files ? ` of ${index.files.toLocaleString()} ${index.files === 1 ? "file" : "files"}` : "";
  const size = element("p", { className: "note" }, `${index.passages.toLocaleString()} passages${files}`);
  byId("search").replaceChildren(row, ...filterFields(index.columns), size);
  byId("search").addEventListener("submit", sendSearch);
  byId("search").hidden = byId("hits").hidden = false;
  byId("model").open = false;
  byId("model-title").hidden = false;
}
