"use strict";
/* Draws charts with uPlot. A chart is a plain object with the fields of LineChart or BarChart in report/spec.py. */
const Charts = (() => {
  const FONT = "12px system-ui, sans-serif", WHOLE = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap(k => [k, 2 * k, 5 * k]);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ink = () => css("--ink"), soft = () => css("--soft"), rule = () => css("--line");
  const paint = color => color === "#000000" ? ink() : color;
  const digits = v => v === 0 ? "0" : Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3 ? v.toExponential(1)
    : Number(v.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 });
  const number = v => v == null ? "" : digits(v).replace("-", "−");

  /* The round numbers of a logarithmic axis: powers of 2, or 1, 2 and 5 times powers of 10 (powers alone over many). */
  function roundNumbers(base, low, high) {
    const steps = base === 2 || high / low > 1e4 ? [1] : high / low > 100 ? [1, 3] : [1, 2, 5], found = [];
    const log = v => Math.log(v) / Math.log(base);
    for (let k = Math.floor(log(low)) - 1; k <= Math.ceil(log(high)); k++)
      for (const step of steps) found.push(Number((step * base ** k).toPrecision(12)));
    return found;
  }
  const within = (values, low, high) => values.filter(v => v >= low * 0.9999 && v <= high * 1.0001);

  function valueRange(axis, low, high, withZero) {
    if (low == null) return [null, null];
    const [least, most] = axis.bounds;
    if (axis.log) {
      const ticks = roundNumbers(axis.log, least ?? low, high);
      return [least ?? ticks.findLast(t => t <= low) ?? low, most ?? ticks.find(t => t >= high) ?? high];
    }
    if (withZero || least === 0) low = Math.min(0, low);
    if (withZero) high = Math.max(0, high);
    if (low === high) [low, high] = least === 0 ? [0, Math.abs(high) || 1] : [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
    const [from, to] = uPlot.rangeNum(low, high, 0.05, true);
    return [least ?? (withZero && low === 0 ? 0 : from), most ?? to];
  }
  function baseRange(axis, low, high) {
    if (low == null) return [null, null];
    if (axis.log) return [low / 1.15, high * 1.15];
    if (low === high) return [low - 1, high + 1];
    return [axis.bounds[0] ?? low, axis.bounds[1] ?? high];
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
      : axis.log ? (u, i, low, high) => within(roundNumbers(axis.log, low, high), low, high) : undefined;
    return {
      scale, side, label: axis.label, labelSize: axis.label ? 20 : 0, labelGap: 0, labelFont: FONT, font: FONT, stroke: soft,
      grid: color, ticks: { ...color, size: 5 }, gap: 4, size, space: upright ? 32 : 55, filter: (u, ticks) => ticks,
      values: (u, ticks) => ticks.map(number), ...(splits && { splits }), ...(axis.whole && { incrs: WHOLE }), ...own,
    };
  }

  function lines(chart) {
    const series = [{ label: chart.x_axis.label, value: (u, v) => number(v) }], bands = [], owner = {};
    const add = options => series.push({ spanGaps: true, value: (u, v) => number(v), points: { show: false }, ...options }) - 1;
    chart.lines.forEach((line, k) => {
      if (!line.high.length) return;
      const edge = { class: "quiet", width: 0, stroke: "transparent" };
      const pair = [add(edge), add(edge)];
      (owner[k] ??= []).push(...pair);
      bands.push({ series: pair, fill: () => paint(line.color) + "26" });
    });
    const follows = {};
    chart.lines.forEach((line, k) => {
      const color = () => paint(line.color);
      const i = add({
        label: line.label, class: line.label ? "line" : "quiet", stroke: color, width: line.width, dash: line.dash.map(d => d * line.width),
        alpha: line.width ? 1 : 0.5, points: { show: (u, j) => line.dots || u.data[j].filter(v => v != null).length === 1, size: 6, stroke: color, fill: color },
      });
      follows[i] = owner[k] ?? [];
    });
    const marker = u => {
      if (!chart.marker) return;
      const [value, text] = chart.marker, { ctx, bbox } = u, at = u.valToPos(value, "x", true), ratio = devicePixelRatio;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = soft();
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.lineWidth = ratio;
      ctx.beginPath(); ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); ctx.stroke();
      ctx.font = `${11 * ratio}px system-ui, sans-serif`; ctx.textAlign = "left"; ctx.textBaseline = "top";
      ctx.fillText(text, at + 4 * ratio, bbox.top + 2 * ratio);
      ctx.restore();
    };
    return {
      series, bands, legend: { markers: {
        width: () => 2, fill: () => "none", stroke: (u, i) => u.series[i].stroke(u, i),
        dash: (u, i) => !series[i].dash?.length ? "solid" : series[i].dash[0] <= 2 * series[i].width ? "dotted" : "dashed",
      } },
      scales: {
        x: { time: false, distr: chart.x_axis.log ? 3 : 1, log: chart.x_axis.log || 10, dir: chart.x_axis.reverse ? -1 : 1, range: (u, a, b) => baseRange(chart.x_axis, a, b) },
        y: { distr: chart.y_axis.log ? 3 : 1, log: 10, range: (u, a, b) => valueRange(chart.y_axis, a, b, false) },
      },
      axes: [axisOptions(chart.x_axis, "x", 2), axisOptions(chart.y_axis, "y", 3)],
      hooks: { draw: [marker], setSeries: [(u, i, o) => { if ("show" in o) for (const j of follows[i] ?? []) u.setSeries(j, { show: o.show }); }] },
    };
  }
  const lineColumns = chart => [chart.x, ...chart.lines.filter(l => l.high.length).flatMap(l => [l.high, l.low]), ...chart.lines.map(l => l.y)];

  function hatch(u, color) {
    const side = 7 * devicePixelRatio, tile = document.createElement("canvas"), c = tile.getContext("2d");
    tile.width = tile.height = side;
    c.fillStyle = color; c.fillRect(0, 0, side, side);
    c.strokeStyle = css("--paper"); c.lineWidth = 1.5 * devicePixelRatio;
    for (const k of [-1, 0, 1]) { c.beginPath(); c.moveTo((k - 0.5) * side, side * 1.5); c.lineTo((k + 1.5) * side, -side * 0.5); c.stroke(); }
    return u.ctx.createPattern(tile, "repeat");
  }

  function bars(chart) {
    const many = chart.bars.length, flat = chart.horizontal, axis = chart.value_axis, boxes = [];
    const series = [{ label: chart.name_axis.label, value: (u, v) => v == null ? "" : chart.names[v] ?? "" }];
    chart.bars.forEach((b, k) => {
      const fills = u => { const own = {}; return b.values.map((_, i) => { const c = paint(b.colors[i]); return b.hatched[i] ? own[c] ??= hatch(u, c) : c; }); };
      series.push({
        label: b.label, class: b.label ? "bars" : "quiet", width: 0, points: { show: false }, value: (u, v) => number(v),
        paths: uPlot.paths.bars({
          size: [0.78 / many, 46], align: many === 1 ? 0 : k ? 1 : -1, disp: { fill: { unit: 3, values: fills } },
          each: (u, s, i, left, top, width, height) => { boxes[k] ??= []; boxes[k][i] = { left, top, width, height }; },
        }),
      });
    });
    const across = u => {
      const at = u.valToPos(chart.threshold[0], "y", true), path = new Path2D(), { left, top, width, height } = u.bbox;
      path.moveTo(flat ? at : left, flat ? top : at); path.lineTo(flat ? at : left + width, flat ? top + height : at);
      return { stroke: path, fill: null, clip: null, band: null, gaps: null, flags: 0 };
    };
    if (chart.threshold)
      series.push({ label: chart.threshold[1], stroke: "#d03030", width: 1.5, dash: [6, 4], points: { show: false }, paths: across, value: (u, v) => number(v) });
    const finish = u => {
      const { ctx, bbox } = u, ratio = devicePixelRatio;
      ctx.save();
      ctx.setLineDash([]);
      chart.bars.forEach((b, k) => (boxes[k] ?? []).forEach((box, i) => {
        if (!u.series[k + 1].show) return;
        if (b.low.length && b.high[i] !== b.low[i]) {
          const x = box.left + box.width / 2, [y0, y1] = [b.low[i], b.high[i]].map(v => u.valToPos(v, "y", true)), cap = 4 * ratio;
          ctx.lineWidth = 1.5 * ratio; ctx.strokeStyle = ink();
          ctx.beginPath(); ctx.moveTo(x, y0); ctx.lineTo(x, y1);
          for (const y of [y0, y1]) { ctx.moveTo(x - cap, y); ctx.lineTo(x + cap, y); }
          ctx.stroke();
        }
        if (b.texts.length) {
          ctx.font = `${11 * ratio}px system-ui, sans-serif`; ctx.textAlign = "left"; ctx.textBaseline = "middle"; ctx.lineJoin = "round";
          const room = bbox.left + bbox.width - 2 * ratio - ctx.measureText(b.texts[i]).width;
          const x = Math.min(box.left + box.width + 5 * ratio, room), y = box.top + box.height / 2;
          ctx.strokeStyle = css("--paper"); ctx.lineWidth = 4 * ratio; ctx.strokeText(b.texts[i], x, y);
          ctx.fillStyle = ink(); ctx.fillText(b.texts[i], x, y);
        }
      }));
      ctx.restore();
    };
    const ends = chart.bars.flatMap(b => [...b.low, ...b.high]).filter(v => v != null);
    /* How far the axis must go for the text at the end of each bar to fit; the names take about 160 pixels. */
    const room = u => Math.max(0, ...chart.bars.flatMap(b => b.texts.map((text, i) => {
      const width = u.width - 160;
      return b.values[i] / Math.max(0.4, 1 - (6.5 * text.length + 10) / width);
    })));
    const names = { splits: () => chart.names.map((_, i) => i), values: () => chart.names, grid: { show: false }, ticks: { show: false } };
    if (flat) names.label = null, names.labelSize = 0;
    return {
      series, bands: [], legend: { show: series.some(s => s.label && s !== series[0]), markers: {
        width: (u, i) => series[i].dash ? 2 : 0, dash: () => "dashed", stroke: () => "#d03030",
        fill: (u, i) => i > many ? "none" : `linear-gradient(90deg, ${[...new Set(chart.bars[i - 1].colors)].slice(0, 4).map(paint).join(", ")}, ${paint(chart.bars[i - 1].colors.at(-1))})`,
      } },
      scales: {
        x: { time: false, ori: flat ? 1 : 0, dir: flat ? -1 : 1, range: () => [-0.6, chart.names.length - 0.4] },
        y: { ori: flat ? 0 : 1, distr: axis.log ? 3 : 1, log: 10, range: (u, a, b) => a == null ? [0, 1] : valueRange(axis, Math.min(a, ...ends), Math.max(b, room(u), ...ends), true) },
      },
      axes: [axisOptions(chart.name_axis, "x", flat ? 3 : 2, names), axisOptions(axis, "y", flat ? 2 : 3)],
      hooks: { draw: [finish] },
    };
  }
  const barColumns = chart => [chart.names.map((_, i) => i), ...chart.bars.map(b => b.values), ...(chart.threshold ? [chart.names.map(() => chart.threshold[0])] : [])];

  const KINDS = { lines: [lines, lineColumns], bars: [bars, barColumns] };
  const height = (chart, width) => chart.kind === "bars" && chart.horizontal ? 70 + chart.names.length * (chart.bars.length > 1 ? 32 : 26)
    : Math.round(Math.min(340, Math.max(230, width * 0.5)));
  const size = place => ({ width: Math.floor(place.clientWidth), height: height(place.chart, place.clientWidth) });
  const shape = chart => JSON.stringify([chart.kind, chart.lines?.map(l => [l.label, l.color, l.high.length > 0])]);

  function draw(place) {
    if (!place.clientWidth) return;
    if (place.plot) { place.plot.setSize(size(place)); return; }
    const [options, columns] = KINDS[place.chart.kind], cursor = { drag: { x: false, y: false }, y: false, points: { size: 7 } };
    place.plot = new uPlot({ ...size(place), cursor, padding: [8, 12, 0, 0], ...options(place.chart) }, columns(place.chart), place);
  }
  const clear = place => { place.plot?.destroy(); place.plot = null; };
  const watcher = new ResizeObserver(entries => { for (const entry of entries) draw(entry.target); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const place of document.querySelectorAll(".plot")) if (place.chart) { clear(place); draw(place); }
  });

  return {
    draw, clear,
    /* Draw a chart in an element as soon as that has a width; a chart of the same lines as before only gets new values. */
    show(place, chart) {
      const same = place.plot && shape(place.chart) === shape(chart);
      place.chart = chart;
      if (same) { place.plot.setData(KINDS[chart.kind][1](chart)); return; }
      clear(place);
      place.replaceChildren();
      watcher.observe(place);
      draw(place);
    },
  };
})();
