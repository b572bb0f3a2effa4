"use strict";
const $ = id => document.getElementById(id);
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f"];
const colour = i => COLOURS[i % COLOURS.length];
const SMOOTH = 20, POINTS = 400, NAMED = 12; // episodes in a mean, points in a line, clients in a legend
let about, run, at, shownFor = "", failures = 0;

const short = x => x === 0 ? "0" : Math.abs(x) >= 1000 || Math.abs(x) < 0.001 ? x.toExponential(1)
  : String(Number(x.toPrecision(3)));
const text = (tag, words) => { const e = document.createElement(tag); e.textContent = words; return e; };

function begin() { run = { clients: about && Array.from({ length: about.clients }, () => []), rounds: [] }; at = [0, 0]; }

/* The running mean over the last SMOOTH values, thinned to POINTS points. */
function smooth(values) {
  const out = [], every = Math.max(1, Math.ceil(values.length / POINTS));
  let sum = 0;
  values.forEach((v, i) => {
    sum += v - (i >= SMOOTH ? values[i - SMOOTH] : 0);
    if (i % every === 0 || i === values.length - 1) out.push([i + 1, sum / Math.min(i + 1, SMOOTH)]);
  });
  return out;
}

/* Draws lines, each given as [x, y] points, with Charts.show. */
function chart(where, xLabel, yAxis, lines) {
  const x = [...new Set(lines.flatMap(l => l.points.map(p => p[0])))].sort((a, b) => a - b), place = $(where);
  if (!x.length) { Charts.clear(place); place.replaceChildren(text("p", "nothing yet")); return; }
  const axis = { log: 0, ticks: [], bounds: [null, null], reverse: false, whole: false, label: "" };
  const plain = { low: [], high: [], dash: [], width: 1.5, dots: false };
  Charts.show(place, {
    kind: "lines", x_axis: { ...axis, label: xLabel, whole: true }, y_axis: { ...axis, ...yAxis }, x, marker: null,
    lines: lines.map(({ points, ...line }) => {
      const values = new Map(points);
      return { ...plain, ...line, y: x.map(v => values.get(v) ?? null) };
    }),
  });
}

function table(where, head, rows) {
  const t = document.createElement("table"), line = (cells, tag) => {
    const r = document.createElement("tr"); r.append(...cells.map(c => text(tag, c))); return r; };
  t.append(line(head, "th"), ...rows.map(r => line(r, "td")));
  $(where).replaceChildren(t);
}

function describe(state, done) {
  const round = `round ${done} of ${about.rounds}`;
  if (state === "finished") return `finished after ${done} rounds`;
  if (state === "stopped") return `stopped ${done ? `after ${round}` : "in its first round"}; resume with: ${about.resume}`;
  return done ? `running: ${round} is done` : "running: the first round is not done yet";
}

function draw(state) {
  const played = run.clients.flat(), last = run.rounds.at(-1);
  const done = run.rounds.length;
  $("progress").max = about.rounds; $("progress").value = done;
  $("state").textContent = describe(state, done);
  $("state").className = state;
  const latest = run.clients.map(e => e.slice(-SMOOTH)).filter(e => e.length);
  const mean = latest.length ? latest.map(e => e.reduce((s, x) => s + x.return, 0) / e.length).reduce((s, x) => s + x, 0) / latest.length : NaN;
  const steps = played.reduce((s, e) => s + e.length, 0), took = run.rounds.reduce((s, r) => s + r.seconds, 0);
  const tiles = [["rounds", `${done} / ${about.rounds}`], ["return, last 20", Number.isFinite(mean) ? mean.toFixed(1) : "–"],
    ["ε", played.length ? short(Math.max(...run.clients.filter(e => e.length).map(e => e.at(-1).epsilon))) : "–"],
    ["steps", steps.toLocaleString("en")], ["steps per second", took ? Math.round(steps / took).toLocaleString("en") : "–"],
    ["replies refused", last ? String(last.refused) : "–"]];
  $("tiles").replaceChildren(...tiles.map(([name, value]) => {
    const d = document.createElement("div"); d.className = "tile"; d.append(text("b", value), name); return d; }));
  const named = i => i < NAMED ? `client ${i}` : "";
  chart("returns", "episode", {}, run.clients.map((e, i) => ({ label: named(i), color: colour(i), points: smooth(e.map(x => x.return)) })));
  const longest = run.clients.reduce((a, b) => a.length >= b.length ? a : b, []), fromZero = { bounds: [0, null] };
  chart("epsilon", "episode", fromZero, [{ label: "ε", color: COLOURS[0], points: longest.map((x, i) => [i + 1, x.epsilon]) }]);
  chart("seconds", "round", fromZero, [{ label: "seconds", color: COLOURS[0], points: run.rounds.map(r => [r.round + 1, r.seconds]) }]);
  chart("replies", "round", { ...fromZero, whole: true }, ["refused", "left out", "late"].map((kind, i) => (
    { label: kind, color: colour(i), points: run.rounds.map(r => [r.round + 1, r[kind]]) })));
  chart("apart", "round", { log: 10 }, run.clients.map((_, i) => ({ label: named(i), color: colour(i),
    points: run.rounds.filter(r => r.apart[i] > 0).map(r => [r.round + 1, r.apart[i]]) })));
  table("clients", ["client", "episodes", "return", "ε"], run.clients.map((e, i) => [String(i), String(e.length),
    e.length ? (e.slice(-SMOOTH).reduce((s, x) => s + x.return, 0) / Math.min(e.length, SMOOTH)).toFixed(1) : "–",
    e.length ? short(e.at(-1).epsilon) : "–"]));
}

async function replay(version) {
  const want = version && `${version} ${$("client").value}`;
  if (!want || want === shownFor) return;
  shownFor = want;
  $("shown").textContent = "a replay is being made …";
  const answer = await fetch(`/replay.gif?client=${$("client").value}&of=${encodeURIComponent(version)}`);
  if (!answer.ok) { $("shown").textContent = `no replay: ${await answer.text()}`; $("replay").hidden = true; return; }
  const old = $("replay").src;
  $("replay").src = URL.createObjectURL(await answer.blob());
  $("replay").hidden = false;
  $("shown").textContent = version === "finished" ? "at the end of the run" : `after round ${Number(version.split("-")[1])}`;
  if (old.startsWith("blob:")) URL.revokeObjectURL(old);
}

async function ask() {
  let pause = 1000;
  try {
    const news = await (await fetch(`/data?metrics=${at[0]}&rounds=${at[1]}`)).json();
    if (news.anew) { begin(); pause = 0; } else {
      for (const e of news.episodes) run.clients[e.client].push(e);
      run.rounds.push(...news.rounds);
      const more = news.metrics !== at[0] || news.roundsAt !== at[1];
      at = [news.metrics, news.roundsAt];
      draw(news.state);
      if (!$("client").matches(":focus")) replay(news.replay).catch(() => { shownFor = ""; });
      $("client").onchange = () => replay(news.replay);
      pause = more ? 500 : news.state === "finished" ? 5000 : 1000;
    }
    failures = 0;
  } catch (error) {
    if (++failures > 2) $("state").textContent = "fedqhd watch no longer responds";
    pause = 3000;
  }
  setTimeout(ask, pause);
}

(async () => {
  about = await (await fetch("/about")).json();
  document.title = `${about.env} – FedQHD`;
  $("title").textContent = `${about.env}: ${about.method}, ${about.setting}`;
  $("about").textContent = `${about.clients} clients, ${about.learner} learner, D ${about.dims.join(", ")}, seed ${about.seed} · ${about.run}`;
  $("client").append(...Array.from({ length: about.clients }, (_, i) => new Option(String(i), String(i))));
  begin();
  ask();
})();
