"use strict";
/* Draws charts with uPlot. A chart is a plain object with the fields of LineChart or BarChart in report/spec.py. */
const Charts = (() => {
  const FONT = "12px system-ui, sans-serif", SMALL = "px system-ui, sans-serif", THRESHOLD = "#d03030";
  const ROUND = Array.from({ length: 25 }, (_, k) => [1, 2, 5].map(step => Number(`${step}e${k - 12}`))).flat();
  const WHOLE = ROUND.filter(step => step >= 1);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ink = () => css("--ink"), soft = () => css("--soft"), rule = () => css("--line"), paper = () => css("--paper");
  const paint = color => color === "#000000" ? ink() : color; // black would be invisible on a dark page
  const digits = v => v === 0 ? "0" : Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3 ? v.toExponential(1)
    : Number(v.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 });
  const number = v => v == null ? "" : digits(v).replace("-", "−");
  const value = (u, v) => number(v);

  /* The round numbers of a logarithmic axis: the steps times every so many powers of the base. */
  function roundNumbers(base, low, high, steps, every = 1) {
    const log = v => Math.log(v) / Math.log(base), found = [];
    for (let k = Math.floor((log(low) - 1) / every) * every; k <= Math.ceil(log(high)); k += every)
      for (const step of steps) found.push(Number((step * base ** k).toPrecision(12)));
    return found;
  }
  const stepsOf = base => base === 2 ? [1] : [1, 2, 5];
  const within = (values, low, high) => values.filter(v => v >= low * 0.9999 && v <= high * 1.0001);

  /* The range of the value axis for data from low to high. */
  function valueRange(axis, low, high, withZero) {
    if (low == null) return [null, null];
    const [least, most] = axis.bounds;
    if (axis.log) {
      const ticks = roundNumbers(axis.log, least ?? low, high, stepsOf(axis.log));
      return [least ?? ticks.findLast(t => t <= low) ?? low, most ?? ticks.find(t => t >= high) ?? high];
    }
    if (withZero || least === 0) [low, high] = [Math.min(0, low), Math.max(0, high)];
    if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
    const [from, to] = uPlot.rangeNum(low, high, 0.05, true);
    return [least ?? (withZero && low === 0 ? 0 : from), most ?? to];
  }
  function baseRange(axis, low, high) {
    if (low == null) return [null, null];
    if (axis.log) return [low / 1.15, high * 1.15];
    if (low === high) return [low - 1, high + 1];
    return [axis.bounds[0] ?? low, axis.bounds[1] ?? high];
  }

  /* The most ticks of a logarithmic axis whose texts do not touch on so many pixels; at least two if there are two. */
  function logTicks(base, low, high, pixels, space) {
    const choices = [[stepsOf(base), 1], ...[1, 2, 3, 4, 6, 8].map(every => [[1], every])];
    const ticks = choices.map(([steps, every]) => within(roundNumbers(base, low, high, steps, every), low, high));
    const gap = found => Math.min(...found.slice(1).map((t, i) => Math.log(t / found[i]))) / Math.log(high / low) * pixels;
    const several = ticks.filter(found => found.length > 1);
    return several.find(found => gap(found) >= space) ?? several.at(-1) ?? ticks[0];
  }

  function axisOptions(axis, scale, side, own = {}) {
    const upright = side === 3, color = { stroke: rule, width: 1 };
    const size = (u, texts) => {
      if (!upright) return 30;
      u.ctx.save();
      u.ctx.font = FONT;
      const widest = Math.max(0, ...(texts ?? []).map(text => u.ctx.measureText(text ?? "").width));
      u.ctx.restore();
      return Math.ceil(widest) + 16;
    };
    const splits = axis.ticks.length ? () => axis.ticks
      : axis.log ? (u, i, low, high) => logTicks(axis.log, low, high,
        (upright ? u.bbox.height : u.bbox.width) / devicePixelRatio, upright ? 18 : 40) : undefined;
    return {
      scale, side, size, label: axis.label, labelSize: axis.label ? 20 : 0, labelGap: 0, labelFont: FONT, font: FONT,
      stroke: soft, grid: color, ticks: { ...color, size: 5 }, gap: 4, space: upright ? 26 : 45,
      filter: (u, ticks) => ticks, values: (u, ticks) => ticks.map(number), ...(splits && { splits }),
      incrs: axis.whole ? WHOLE : ROUND, ...own,
    };
  }

  /* Let a function draw on the canvas of a plot, in pixels of the device. */
  function onCanvas(u, paintOn) {
    u.ctx.save();
    u.ctx.setLineDash([]);
    u.ctx.textAlign = "left";
    u.ctx.font = 11 * devicePixelRatio + SMALL;
    paintOn(u.ctx, u.bbox, devicePixelRatio);
    u.ctx.restore();
  }

  function lines(chart) {
    const series = [{ label: chart.x_axis.label, value }], bands = [], edges = new Map(), followers = new Map();
    const add = options => series.push({ spanGaps: true, value, points: { show: false }, ...options }) - 1;
    for (const line of chart.lines) {
      if (!line.high.length) continue;
      const edge = { class: "quiet", width: 0, stroke: "transparent" }, pair = [add(edge), add(edge)];
      edges.set(line, pair);
      bands.push({ series: pair, fill: () => paint(line.color) + "26" });
    }
    for (const line of chart.lines) {
      const color = () => paint(line.color), isSingle = (u, i) => u.data[i].filter(v => v != null).length === 1;
      const i = add({
        label: line.label, class: line.label ? "line" : "quiet", stroke: color, width: line.width,
        dash: line.dash.map(d => d * line.width), alpha: line.width ? 1 : 0.5,
        points: { show: (u, i) => line.dots || isSingle(u, i), size: 6, stroke: color, fill: color },
      });
      followers.set(i, edges.get(line) ?? []);
    }
    const mark = u => chart.marker && onCanvas(u, (ctx, bbox, ratio) => {
      const at = u.valToPos(chart.marker[0], "x", true);
      ctx.strokeStyle = ctx.fillStyle = soft();
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.lineWidth = ratio;
      ctx.beginPath(); ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); ctx.stroke();
      ctx.textBaseline = "top";
      ctx.fillText(chart.marker[1], at + 4 * ratio, bbox.top + 2 * ratio);
    });
    const takeAlong = (u, i, { show }) => {
      if (show !== undefined) for (const edge of followers.get(i) ?? []) u.setSeries(edge, { show });
    };
    const { x_axis: x, y_axis: y } = chart, distr = axis => axis.log ? 3 : 1;
    const dash = ({ dash, width }) => !dash?.length ? "solid" : dash[0] <= 2 * width ? "dotted" : "dashed";
    return {
      series, bands,
      legend: { markers: {
        width: () => 2, fill: () => "none", stroke: (u, i) => u.series[i].stroke(u, i), dash: (u, i) => dash(series[i]),
      } },
      scales: {
        x: { time: false, distr: distr(x), log: x.log || 10, dir: x.reverse ? -1 : 1, range: (u, a, b) => baseRange(x, a, b) },
        y: { distr: distr(y), log: 10, range: (u, a, b) => valueRange(y, a, b, false) },
      },
      axes: [axisOptions(x, "x", 2), axisOptions(y, "y", 3)],
      hooks: { draw: [mark], setSeries: [takeAlong] },
    };
  }
  const lineColumns = ({ x, lines }) =>
    [x, ...lines.filter(l => l.high.length).flatMap(l => [l.high, l.low]), ...lines.map(l => l.y)];

  /* A striped fill of one colour. */
  function hatch(u, color) {
    const side = 7 * devicePixelRatio, tile = document.createElement("canvas"), ctx = tile.getContext("2d");
    tile.width = tile.height = side;
    ctx.fillStyle = color;
    ctx.fillRect(0, 0, side, side);
    ctx.strokeStyle = paper();
    ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const k of [-1, 0, 1]) { ctx.moveTo((k - 0.5) * side, side * 1.5); ctx.lineTo((k + 1.5) * side, -side * 0.5); }
    ctx.stroke();
    return u.ctx.createPattern(tile, "repeat");
  }

  function bars(chart) {
    const many = chart.bars.length, flat = chart.horizontal, axis = chart.value_axis, boxes = chart.bars.map(() => []);
    const series = [{ label: chart.name_axis.label, value: (u, i) => chart.names[i] ?? "" }];
    chart.bars.forEach((b, k) => {
      const fills = u => {
        const striped = {};
        return b.colors.map(paint).map((c, i) => b.hatched[i] ? striped[c] ??= hatch(u, c) : c);
      };
      const each = (u, s, i, left, top, width, height) => { boxes[k][i] = { left, top, width, height }; };
      const size = [0.78 / many, 46], align = many === 1 ? 0 : k ? 1 : -1, disp = { fill: { unit: 3, values: fills } };
      series.push({
        label: b.label, class: b.label ? "bars" : "quiet", width: 0, points: { show: false }, value,
        paths: uPlot.paths.bars({ size, align, disp, each }),
      });
    });
    const across = u => {
      const at = u.valToPos(chart.threshold[0], "y", true), path = new Path2D(), { left, top, width, height } = u.bbox;
      path.moveTo(flat ? at : left, flat ? top : at);
      path.lineTo(flat ? at : left + width, flat ? top + height : at);
      return { stroke: path, fill: null, clip: null, band: null, gaps: null, flags: 0 };
    };
    if (chart.threshold)
      series.push({ label: chart.threshold[1], stroke: THRESHOLD, width: 1.5, dash: [6, 4], points: { show: false }, paths: across, value });
    const whisker = (u, ctx, ratio, box, low, high) => {
      const x = box.left + box.width / 2, ends = [low, high].map(v => u.valToPos(v, "y", true)), cap = 4 * ratio;
      ctx.lineWidth = 1.5 * ratio;
      ctx.strokeStyle = ink();
      ctx.beginPath(); ctx.moveTo(x, ends[0]); ctx.lineTo(x, ends[1]);
      for (const y of ends) { ctx.moveTo(x - cap, y); ctx.lineTo(x + cap, y); }
      ctx.stroke();
    };
    const label = (ctx, bbox, ratio, box, text) => {
      const last = bbox.left + bbox.width - 2 * ratio - ctx.measureText(text).width;
      const x = Math.min(box.left + box.width + 5 * ratio, last), y = box.top + box.height / 2;
      ctx.textBaseline = "middle";
      ctx.lineJoin = "round";
      ctx.lineWidth = 4 * ratio;
      ctx.strokeStyle = paper();
      ctx.strokeText(text, x, y);
      ctx.fillStyle = ink();
      ctx.fillText(text, x, y);
    };
    const finish = u => onCanvas(u, (ctx, bbox, ratio) => chart.bars.forEach((b, k) => boxes[k].forEach((box, i) => {
      if (!u.series[k + 1].show) return;
      if (b.low.length && b.high[i] !== b.low[i]) whisker(u, ctx, ratio, box, b.low[i], b.high[i]);
      if (b.texts.length) label(ctx, bbox, ratio, box, b.texts[i]);
    })));
    const ends = chart.bars.flatMap(b => [...b.low, ...b.high]).filter(v => v != null);
    /* The end of the axis at which the texts at the ends of all bars fit; the names take about 160 pixels. */
    const room = u => Math.max(0, ...chart.bars.flatMap(b => b.texts.map((text, i) =>
      b.values[i] / Math.max(0.4, 1 - (6.5 * text.length + 10) / (u.width - 160)))));
    const range = (u, a, b) => a == null ? [0, 1]
      : valueRange(axis, Math.min(a, ...ends), Math.max(b, room(u), ...ends), true);
    const names = {
      splits: () => chart.names.map((_, i) => i), values: () => chart.names, grid: { show: false }, ticks: { show: false },
      ...(flat && { label: null, labelSize: 0 }),
    };
    const swatch = colors => `linear-gradient(90deg, ${[colors[0], ...new Set(colors)].slice(0, 5).map(paint).join(", ")})`;
    return {
      series,
      legend: { show: series.slice(1).some(s => s.label), markers: {
        width: (u, i) => i > many ? 2 : 0, dash: () => "dashed", stroke: () => THRESHOLD,
        fill: (u, i) => i > many ? "none" : swatch(chart.bars[i - 1].colors),
      } },
      scales: {
        x: { time: false, ori: flat ? 1 : 0, dir: flat ? -1 : 1, range: () => [-0.6, chart.names.length - 0.4] },
        y: { ori: flat ? 0 : 1, distr: axis.log ? 3 : 1, log: 10, range },
      },
      axes: [axisOptions(chart.name_axis, "x", flat ? 3 : 2, names), axisOptions(axis, "y", flat ? 2 : 3)],
      hooks: { draw: [finish] },
    };
  }
  const barColumns = ({ names, bars, threshold }) =>
    [names.map((_, i) => i), ...bars.map(b => b.values), ...(threshold ? [names.map(() => threshold[0])] : [])];

  const KINDS = { lines: [lines, lineColumns], bars: [bars, barColumns] };
  function size({ chart, clientWidth: width }) {
    if (chart.kind === "bars" && chart.horizontal) return { width, height: 70 + chart.names.length * (chart.bars.length > 1 ? 32 : 26) };
    return { width, height: Math.round(Math.min(340, Math.max(230, width * 0.5))) };
  }
  const shape = chart => JSON.stringify([chart.kind, chart.lines?.map(l => [l.label, l.color, l.high.length > 0])]);

  /* Draw the chart of an element, or resize it to the width of the element; do nothing while the element is hidden. */
  function draw(place) {
    if (!place.clientWidth || place.plot?.width === place.clientWidth) return;
    if (place.plot) { place.plot.setSize(size(place)); return; }
    const [options, columns] = KINDS[place.chart.kind];
    const cursor = { drag: { x: false, y: false }, y: false, points: { size: 7 } };
    const settings = { ...size(place), cursor, padding: [8, 12, 0, 0], ...options(place.chart) };
    place.plot = new uPlot(settings, columns(place.chart), place);
  }
  function clear(place) { place.plot?.destroy(); place.plot = null; }
  /* Show a chart in an element. If it has the same lines as the chart before it, only the values are replaced. */
  function show(place, chart) {
    const isSame = place.plot && shape(place.chart) === shape(chart);
    place.chart = chart;
    if (isSame) { place.plot.setData(KINDS[chart.kind][1](chart)); return; }
    clear(place);
    place.replaceChildren();
    watcher.observe(place);
    draw(place);
  }
  /* Show the charts of a page, whose figures hold them as JSON. */
  function showAll() {
    for (const figure of document.querySelectorAll("figure.chart"))
      show(figure.querySelector(".plot"), JSON.parse(figure.querySelector("script").textContent));
  }
  const watcher = new ResizeObserver(entries => { for (const entry of entries) if (entry.target.chart) draw(entry.target); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const place of document.querySelectorAll(".plot")) if (place.plot) { clear(place); draw(place); }
  });
  return { show, showAll, draw, clear };
})();
