"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const single = data.pairs[0].length === 1;
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const frames = single ? null : bytes(data.frames);
  const states = data.observed ? new Uint16Array(bytes(data.observed.levels).buffer) : null;
  const count = data.steps.length;
  const ABSENT = 65535, OUTSIDE = 65534, TOP = 65533;
  const RAMPS = {
    light: [[255, 255, 255], [214, 230, 243], [134, 186, 220], [58, 124, 188], [32, 66, 136], [18, 26, 72]],
    dark: [[24, 30, 39], [46, 44, 96], [112, 54, 134], [198, 76, 108], [246, 142, 78], [255, 228, 156]],
  };
  let printing = false;
  const state = { pair: 0, step: 0, timer: null };

  // --- colours ---------------------------------------------------------------------------------
  const theme = () => (printing ? "light" : root.dataset.theme);
  const PRINT = { ink: "#1b2430", soft: "#566273", line: "#dbe1e9", surface: "#ffffff", accent: "#2464b4",
    "band-narrow": "#9dc2e8", dot: "#d2480c", "dot-edge": "#ffffff" };
  const colour = (name) => (printing ? PRINT[name] : getComputedStyle(root).getPropertyValue("--" + name).trim());
  const ramp = (share) => {
    const stops = RAMPS[theme()], at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
    const i = Math.min(Math.floor(at), stops.length - 2), part = at - i;
    return stops[i].map((value, c) => Math.round(value + part * (stops[i + 1][c] - value)));
  };

  // --- numbers ---------------------------------------------------------------------------------
  const shown = (value, digits = 3) => {
    if (value === null) return "−∞";
    const size = Math.abs(value);
    const text = size === 0 || (size >= 1e-3 && size < 1e5) ? String(Number(value.toPrecision(digits))) : value.toExponential(1);
    return text.replace("-", "−");
  };
  const ticks = (low, high, wanted) => {
    const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
    const apart = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(low / apart - 1e-9); k * apart <= high + 1e-9 * apart; k++) found.push(Number((k * apart).toPrecision(12)));
    return found;
  };
  // Square roots of densities relative to the largest, side * side of them; rows go up the second coordinate.
  const levels = (pair, frame) => {
    const size = data.side * data.side, perPair = size * (count + (data.longRun ? 1 : 0));
    return frames.subarray(pair * perPair + frame * size, pair * perPair + (frame + 1) * size);
  };
  const points = (step, pair) => {
    const dim = data.names.length, found = [];
    let outside = 0;
    for (let n = 0; states && n < data.observed.count; n++) {
      const at = pair.map((c) => states[(n * count + step) * dim + c]);
      if (at.includes(ABSENT)) continue;
      if (at.includes(OUTSIDE)) outside += 1; else found.push(at.map((level) => level / TOP));
    }
    return { found, outside };
  };

  // --- drawing ---------------------------------------------------------------------------------
  const prepare = (canvas, width, height) => {
    const ratio = Math.max(window.devicePixelRatio || 1, printing ? 3 : 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return pen;
  };
  const FINE = 200;
  const image = (pair, frame, fine) => {
    const from = levels(pair, frame), side = data.side, made = document.createElement("canvas");
    made.width = made.height = fine;
    const pen = made.getContext("2d"), pixels = pen.createImageData(fine, fine);
    const table = Array.from({ length: 1024 }, (_, i) => ramp(i / 1023));
    const place = (i) => {
      const at = Math.min(Math.max(((i + 0.5) * side) / fine - 0.5, 0), side - 1), low = Math.min(Math.floor(at), side - 2);
      return [low, at - low];
    };
    const places = Array.from({ length: fine }, (_, i) => place(i));
    for (let row = 0; row < fine; row++) {
      const [r, b] = places[fine - 1 - row];
      for (let column = 0; column < fine; column++) {
        const [c, a] = places[column], i = r * side + c;
        const value = (1 - b) * ((1 - a) * from[i] + a * from[i + 1]) + b * ((1 - a) * from[i + side] + a * from[i + side + 1]);
        const tint = table[Math.round((value / 255) * 1023)], at = 4 * (row * fine + column);
        pixels.data[at] = tint[0]; pixels.data[at + 1] = tint[1]; pixels.data[at + 2] = tint[2]; pixels.data[at + 3] = 255;
      }
    }
    pen.putImageData(pixels, 0, 0);
    return made;
  };
  // The level above which a share of the mass lies, in the same square roots.
  const levelOf = (values, share) => {
    const sorted = Float64Array.from(values).sort().reverse();
    const total = sorted.reduce((sum, value) => sum + value * value, 0);
    let sum = 0;
    for (const value of sorted) { sum += value * value; if (sum >= share * total) return Math.max(value, 1) - 0.5; }
    return 0.5;
  };
  const contour = (pen, values, level, box) => {
    const side = data.side, x = (i) => box.x + ((i + 0.5) / side) * box.w, y = (i) => box.y + box.h - ((i + 0.5) / side) * box.h;
    pen.beginPath();
    for (let r = 0; r + 1 < side; r++) for (let c = 0; c + 1 < side; c++) {
      const corners = [[c, r], [c + 1, r], [c + 1, r + 1], [c, r + 1]].map(([i, j]) => [i, j, values[j * side + i]]);
      const cuts = [];
      corners.forEach((one, k) => {
        const next = corners[(k + 1) % 4];
        if (one[2] > level !== next[2] > level) {
          const part = (level - one[2]) / (next[2] - one[2]);
          cuts.push([x(one[0] + part * (next[0] - one[0])), y(one[1] + part * (next[1] - one[1]))]);
        }
      });
      for (let k = 0; k + 1 < cuts.length; k += 2) { pen.moveTo(...cuts[k]); pen.lineTo(...cuts[k + 1]); }
    }
    pen.stroke();
  };
  const clipped = (pen, text, room) => {
    let name = text;
    while (name.length > 2 && pen.measureText(name).width > room) name = name.slice(0, -2) + "…";
    return name;
  };
  const axes = (pen, box, ends, names, wanted) => {
    pen.fillStyle = colour("soft"); pen.strokeStyle = colour("soft"); pen.lineWidth = 1;
    pen.font = "12.5px system-ui, sans-serif"; pen.textAlign = "center"; pen.textBaseline = "top";
    for (const value of ticks(...ends[0], wanted)) {
      const at = box.x + ((value - ends[0][0]) / (ends[0][1] - ends[0][0])) * box.w;
      pen.beginPath(); pen.moveTo(at, box.y + box.h); pen.lineTo(at, box.y + box.h + 5); pen.stroke();
      pen.fillText(shown(value, 6), at, box.y + box.h + 8);
    }
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const value of ticks(...ends[1], wanted)) {
      const at = box.y + box.h - ((value - ends[1][0]) / (ends[1][1] - ends[1][0])) * box.h;
      pen.beginPath(); pen.moveTo(box.x - 5, at); pen.lineTo(box.x, at); pen.stroke();
      pen.fillText(shown(value, 6), box.x - 8, at);
    }
    pen.strokeRect(box.x, box.y, box.w, box.h);
    pen.fillStyle = colour("ink"); pen.font = "600 14px system-ui, sans-serif"; pen.textAlign = "center";
    pen.textBaseline = "bottom"; pen.fillText(clipped(pen, names[0], box.w), box.x + box.w / 2, box.y + box.h + 46);
    pen.save(); pen.translate(10, box.y + box.h / 2); pen.rotate(-Math.PI / 2); pen.textBaseline = "middle";
    pen.fillText(clipped(pen, names[1], box.h), 0, 0); pen.restore();
  };
  const scale = (pen, box, peak) => {
    const x = box.x + box.w + 12, w = 11;
    for (let i = 0; i < box.h; i++) {
      pen.fillStyle = `rgb(${ramp(Math.sqrt(1 - i / box.h)).join(",")})`;
      pen.fillRect(x, box.y + i, w, 1.5);
    }
    pen.strokeStyle = colour("soft"); pen.lineWidth = 1; pen.strokeRect(x, box.y, w, box.h);
    pen.fillStyle = colour("soft"); pen.font = "12px system-ui, sans-serif"; pen.textAlign = "left";
    [0, 0.25, 0.5, 0.75, 1].forEach((share) => {
      pen.textBaseline = "middle";
      pen.fillText(shown(share * peak, 2), x + w + 5, box.y + box.h * (1 - share) + (share === 1 ? 5 : share === 0 ? -5 : 0));
    });
  };
  const dots = (pen, found, box, radius) => {
    pen.fillStyle = colour("dot"); pen.strokeStyle = colour("dot-edge"); pen.lineWidth = 0.7;
    for (const [a, b] of found) {
      pen.beginPath(); pen.arc(box.x + a * box.w, box.y + (1 - b) * box.h, radius, 0, 2 * Math.PI);
      pen.globalAlpha = 0.85; pen.fill(); pen.stroke();
    }
    pen.globalAlpha = 1;
  };
  const drawPair = (canvas, frame, step) => {
    const width = canvas.clientWidth || 480, narrow = width < 420;
    const pair = data.pairs[state.pair], left = narrow ? 48 : 62, box = { x: left, y: 10, w: width - left - (narrow ? 58 : 66), h: 0 };
    box.h = box.w;
    const pen = prepare(canvas, width, box.h + 62);
    canvas.style.height = box.h + 62 + "px";
    pen.imageSmoothingQuality = "high";
    pen.drawImage(image(state.pair, frame, 2 * FINE), box.x, box.y, box.w, box.h);
    if (byId("regions").checked) {
      const values = levels(state.pair, frame);
      pen.lineWidth = 1.4; pen.lineJoin = "round";
      pen.strokeStyle = colour("ink"); contour(pen, values, levelOf(values, 0.9), box);
      pen.strokeStyle = colour("surface"); contour(pen, values, levelOf(values, 0.5), box);
    }
    if (step !== null && byId("observed").checked) dots(pen, points(step, pair).found, box, narrow ? 1.9 : 2.4);
    axes(pen, box, pair.map((c) => [data.low[c], data.high[c]]), pair.map((c) => data.names[c]), narrow ? 4 : 6);
    scale(pen, box, data.peaks[state.pair][frame]);
    return box;
  };
  const histogram = (found, bins, width) => {
    const heights = new Array(bins).fill(0);
    for (const [a] of found) heights[Math.min(Math.floor(a * bins), bins - 1)] += 1;
    return heights.map((height) => (height * bins) / (found.length * width));
  };
  const top = single ? Math.max(...data.peaks[0].slice(0, count)) * 1.12 : 0;
  const drawSingle = (canvas, frame) => {
    const width = canvas.clientWidth || 480, box = { x: 62, y: 10, w: width - 74, h: Math.round((width - 74) * 0.62) };
    const pen = prepare(canvas, width, box.h + 62), values = data.lines[frame], peak = data.peaks[0][frame];
    canvas.style.height = box.h + 62 + "px";
    const x = (i) => box.x + ((i + 0.5) / values.length) * box.w, y = (p) => box.y + box.h * (1 - Math.min(p / top, 1));
    const found = points(frame, [0]).found;
    pen.fillStyle = colour("band-narrow"); pen.beginPath(); pen.moveTo(x(0), y(0));
    values.forEach((value, i) => pen.lineTo(x(i), y(value * peak)));
    pen.lineTo(x(values.length - 1), y(0)); pen.fill();
    if (byId("observed").checked && found.length) {
      const bins = 36, heights = histogram(found, bins, data.high[0] - data.low[0]);
      pen.strokeStyle = colour("dot"); pen.lineWidth = 1.4; pen.beginPath(); pen.moveTo(box.x, y(0));
      heights.forEach((height, i) => { pen.lineTo(box.x + (i / bins) * box.w, y(height)); pen.lineTo(box.x + ((i + 1) / bins) * box.w, y(height)); });
      pen.lineTo(box.x + box.w, y(0)); pen.stroke();
    }
    pen.strokeStyle = colour("accent"); pen.lineWidth = 2.2; pen.beginPath();
    values.forEach((value, i) => (i ? pen.lineTo(x(i), y(value * peak)) : pen.moveTo(x(i), y(value * peak))));
    pen.stroke();
    axes(pen, box, [[data.low[0], data.high[0]], [0, top]], [data.names[0], "density"], width < 420 ? 4 : 6);
    return box;
  };
  const drawThumb = (canvas, frame) => {
    const width = canvas.clientWidth || 96, pen = prepare(canvas, width, width);
    canvas.style.height = width + "px";
    const box = { x: 0, y: 0, w: width, h: width };
    if (!single) {
      pen.drawImage(image(state.pair, frame, FINE), 0, 0, width, width);
      if (printing && byId("observed").checked) dots(pen, points(frame, data.pairs[state.pair]).found, box, 1);
    } else {
      const values = data.lines[frame], peak = data.peaks[0][frame];
      pen.fillStyle = colour("band-narrow"); pen.beginPath(); pen.moveTo(0, width);
      values.forEach((value, i) => pen.lineTo((i / values.length) * width, width * (1 - (value * peak) / top)));
      pen.lineTo(width, width); pen.fill();
    }
    pen.strokeStyle = colour("line"); pen.strokeRect(0.5, 0.5, width - 1, width - 1);
  };

  // --- the page --------------------------------------------------------------------------------
  const tell = () => {
    const pair = data.pairs[state.pair], k = state.step, list = byId("numbers");
    const rows = [];
    for (const c of pair) {
      rows.push([`mean of ${data.names[c]}`, shown(data.means[k][c], 4)]);
      rows.push([`deviation of ${data.names[c]}`, shown(Math.sqrt(data.covariances[k][c][c]), 4)]);
    }
    if (!single) {
      const [i, j] = pair, C = data.covariances[k];
      rows.push(["correlation", shown(C[i][j] / Math.sqrt(C[i][i] * C[j][j]), 3)]);
    }
    if (states) {
      const { found, outside } = points(k, pair), all = found.length + outside;
      if (data.logLikelihood && all) rows.push(["log-likelihood", shown(data.logLikelihood[k], 4) + " nats per state"]);
      rows.push(["observed states", all ? `${found.length} shown` + (outside ? `, ${outside} outside the picture` : "") : "none at this step"]);
    }
    list.replaceChildren(...rows.flatMap(([name, value]) => {
      const term = document.createElement("dt"), detail = document.createElement("dd");
      term.textContent = name; detail.textContent = value;
      return [term, detail];
    }));
  };
  let area = null;
  const draw = () => {
    const canvas = byId("picture");
    area = single ? drawSingle(canvas, state.step) : drawPair(canvas, state.step, state.step);
    const name = data.pairs[state.pair].map((c) => data.names[c]).join(" and ");
    canvas.setAttribute("aria-label", `Density of ${name} at step ${data.steps[state.step]}`);
    byId("step-value").textContent = `${data.steps[state.step]} of ${data.steps[count - 1]}`;
    byId("step").setAttribute("aria-valuetext", `step ${data.steps[state.step]}`);
    byId("readout").textContent = "";
    tell();
    for (const button of byId("strip").children) button.setAttribute("aria-current", String(Number(button.dataset.step) === state.step));
  };
  const drawRest = () => {
    for (const button of byId("strip").children) drawThumb(button.querySelector("canvas"), Number(button.dataset.step));
    const stationary = byId("stationary");
    if (stationary && data.longRun && !single) { byId("stationary-figure").hidden = false; drawPair(stationary, count, null); }
  };
  const all = () => { draw(); drawRest(); };
  const go = (step) => { state.step = step; byId("step").value = step; draw(); };
  const stop = () => {
    clearInterval(state.timer); state.timer = null;
    byId("play").textContent = "▶ Play"; byId("play").setAttribute("aria-pressed", "false");
  };
  const play = () => {
    if (state.timer !== null) { stop(); return; }
    if (state.step === count - 1) go(0);
    state.timer = setInterval(() => { go(state.step + 1); if (state.step === count - 1) stop(); }, 450);
    byId("play").textContent = "❚❚ Pause"; byId("play").setAttribute("aria-pressed", "true");
  };
  const strip = () => {
    const most = Math.min(count, 8);
    const chosen = [...new Set(Array.from({ length: most }, (_, i) => Math.round((i * (count - 1)) / Math.max(most - 1, 1))))];
    byId("strip").replaceChildren(...chosen.map((k) => {
      const button = document.createElement("button"), text = document.createElement("span");
      button.type = "button"; button.dataset.step = k; text.textContent = `k = ${data.steps[k]}`;
      button.append(document.createElement("canvas"), text);
      button.addEventListener("click", () => { stop(); go(k); });
      return button;
    }));
  };
  const readout = (event) => {
    if (!area) return;
    const frame = byId("picture").getBoundingClientRect();
    const a = (event.clientX - frame.left - area.x) / area.w, b = 1 - (event.clientY - frame.top - area.y) / area.h;
    if (a < 0 || a >= 1 || b < 0 || b >= 1) { byId("readout").textContent = ""; return; }
    const pair = data.pairs[state.pair], peak = data.peaks[state.pair][state.step];
    const value = (c, share) => shown(data.low[c] + share * (data.high[c] - data.low[c]), 3);
    const i = Math.floor(a * data.side), j = Math.floor(b * data.side);
    const density = single ? data.lines[state.step][i] : (levels(state.pair, state.step)[j * data.side + i] / 255) ** 2;
    const where = single ? value(pair[0], a) : `(${value(pair[0], a)}, ${value(pair[1], b)})`;
    byId("readout").textContent = `density at ${where}: ${shown(density * peak, 2)}`;
  };
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  root.dataset.theme = system.matches ? "dark" : "light";
  system.addEventListener("change", () => { root.dataset.theme = system.matches ? "dark" : "light"; all(); });
  byId("theme").addEventListener("click", () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; all(); });

  data.pairs.forEach((pair, i) => byId("pair").add(new Option(pair.map((c) => data.names[c]).join(" × "), i)));
  byId("pair-field").hidden = data.pairs.length === 1;
  byId("regions-field").hidden = single;
  if (single) byId("picture-note").textContent = "Exact densities; observed states as a histogram.";
  byId("observed-field").hidden = !states;
  root.classList.toggle("without-data", !states);
  byId("step").max = count - 1;
  byId("pair").addEventListener("change", () => { state.pair = Number(byId("pair").value); all(); });
  byId("step").addEventListener("input", () => { stop(); go(Number(byId("step").value)); });
  byId("play").addEventListener("click", play);
  byId("observed").addEventListener("change", () => { root.classList.toggle("without-observed", !byId("observed").checked); all(); });
  byId("regions").addEventListener("change", all);
  byId("picture").addEventListener("pointermove", readout);
  byId("picture").addEventListener("pointerleave", () => { byId("readout").textContent = ""; });
  let width = 0;
  new ResizeObserver(() => { if (byId("picture").clientWidth !== width) { width = byId("picture").clientWidth; all(); } }).observe(byId("picture"));
  let before = null;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; printing = true; root.dataset.theme = "light"; document.querySelectorAll("details").forEach((one) => (one.open = true)); drawRest(); });
  window.addEventListener("afterprint", () => { printing = false; root.dataset.theme = before; all(); });
  strip();
  all();
})();
