"use strict";
// Everything here makes the page livelier; without it, reloading shows the same.

// A part of the page that follows its runs: events tell that it has changed, and it is fetched again.
function follow(live) {
  let source = null, waiting = false, newest = stampOf(live), known = newest;
  const listen = () => {
    if (document.hidden || source) return;
    source = new EventSource(live.dataset.events);
    source.onmessage = (event) => {
      newest = event.data;
      renew();
    };
  };
  const renew = async () => {
    if (waiting || newest === known) return;
    waiting = true;
    const stamp = newest, began = performance.now();
    try {
      const answer = await fetch(live.dataset.part);
      if (answer.ok) {
        replace(live, await answer.text());
        known = stamp;
      }
    } catch { /* the page's process has ended; what was shown last stays */ }
    // What takes long to make is asked for less often: the page must not take the machine from what it shows.
    setTimeout(() => { waiting = false; renew(); }, Math.max(1000, 8 * (performance.now() - began)));
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) source = source.close() ?? null;
    listen();
  });
  listen();
}

function stampOf(live) {
  return live.firstElementChild?.dataset.stamp;
}

// Put new markup in the place of the old; what was focused, opened or ticked stays so.
function replace(live, markup) {
  const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
  const opened = [...live.querySelectorAll("details")].map((each) => each.open);
  live.innerHTML = markup;
  live.querySelectorAll("details").forEach((each, place) => { each.open = opened[place] ?? false; });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  prepare();
}

// A line that follows the pointer, or the arrow keys, over a chart, and words on what it crosses.
function follows(chart) {
  const lines = [...chart.querySelectorAll("polyline")].map((line) => ({
    name: line.dataset.name,
    told: line.dataset.told.split("|"),
    x: line.getAttribute("points").split(" ").map((point) => Number(point.split(",")[0])),
  }));
  const output = chart.parentElement.querySelector(".told");
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  const every = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  let place = every.length - 1;
  const show = () => {
    const at = every[place];
    for (const [name, value] of [["x1", at], ["x2", at], ["y1", 12], ["y2", 186]]) cursor.setAttribute(name, value);
    chart.append(cursor);
    const here = lines.filter((line) => line.x.includes(at)).map((line) => [line.name, line.told[line.x.indexOf(at)]]);
    const value = (told) => told.slice(told.indexOf(": ") + 2);
    if (here.length) {
      const when = here[0][1].slice(0, here[0][1].indexOf(": "));
      output.textContent = `${when}: ${here.map(([name, told]) => `${name} ${value(told)}`).join(", ")}`;
    }
  };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
    place = every.reduce((best, x, i) => Math.abs(x - at) < Math.abs(every[best] - at) ? i : best, 0);
    show();
  });
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -every.length, End: every.length }[event.key];
    if (!step) return;
    event.preventDefault();
    place = Math.min(Math.max(place + step, 0), every.length - 1);
    show();
  });
}

// Ticked runs: kept over pages of the list; runs that may not stand beside them say why, and cannot be ticked.
const ticks = {
  get names() { return JSON.parse(sessionStorage.getItem("ticked") ?? "[]"); },
  set names(names) { sessionStorage.setItem("ticked", JSON.stringify(names)); },
};

async function showTicks() {
  const bar = document.getElementById("ticked");
  if (!bar) return;
  const names = ticks.names;
  bar.hidden = !names.length;
  document.getElementById("ticked-names").textContent =
    `${names.length} ticked: ${names.slice(0, 4).join(", ")}${names.length > 4 ? ", …" : ""}`;
  bar.querySelector("button").disabled = names.length < 2;
  bar.querySelectorAll("input").forEach((each) => each.remove());
  for (const name of names) {
    const field = document.createElement("input");
    [field.type, field.name, field.value] = ["hidden", "run", name];
    bar.append(field);
  }
  const apart = names.length ? await reasons(names) : {};
  for (const row of document.querySelectorAll(".runs tbody tr")) {
    const tick = row.querySelector("input"), name = row.dataset.name, why = apart[name] ?? "";
    tick.checked = names.includes(name);
    if (tick.dataset.never === undefined) tick.dataset.never = tick.disabled ? "1" : "";
    tick.disabled = Boolean(tick.dataset.never) || (Boolean(why) && !tick.checked);
    row.classList.toggle("apart", Boolean(why));
    row.querySelector(".why").textContent = why ? `not beside those that are ticked: ${why}` : "";
  }
}

async function reasons(names) {
  const query = new URLSearchParams(names.map((name) => ["run", name]));
  try {
    const answer = await fetch(`/apart?${query}`);
    return answer.ok ? await answer.json() : {};
  } catch {
    return {};
  }
}

// The estimate beside the form, made without leaving the page.
function estimates(button) {
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    const place = document.getElementById("estimate");
    const sent = new URLSearchParams(new FormData(button.form));
    sent.set("part", "1");
    place.textContent = "Trying a few steps …";
    button.disabled = true;
    try {
      const answer = await fetch("/plan", { method: "POST", body: sent });
      place.innerHTML = await answer.text();
    } catch {
      place.textContent = "The page's process does not answer.";
    }
    place.classList.remove("stale");
    button.disabled = false;
    button.focus();
  });
  button.form.addEventListener("input", () => document.getElementById("estimate").classList.add("stale"));
}

function prepare() {
  document.querySelectorAll("svg.chart").forEach(follows);
  showTicks();
}

document.addEventListener("change", (event) => {
  if (!event.target.matches(".runs input[type=checkbox]")) return;
  const name = event.target.value;
  ticks.names = event.target.checked ? [...ticks.names, name] : ticks.names.filter((each) => each !== name);
  showTicks();
});
document.getElementById("untick")?.addEventListener("click", () => { ticks.names = []; showTicks(); });
document.querySelectorAll("[data-events]").forEach(follow);
document.querySelectorAll("#plan").forEach(estimates);
document.querySelectorAll("[data-again]").forEach((each) => setTimeout(() => location.reload(), Number(each.dataset.again)));
prepare();
