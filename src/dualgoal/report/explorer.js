// The distance explorer: maps whose colours are distances to a chosen goal, and where the policy walks on them.

const quantile = (sorted, q) => (sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : 0);
const sortedNumbers = (values) => values.filter((v) => v !== null).sort((a, b) => a - b);
const ticks = (end) => {
  const rough = end / 4, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough * 0.999);
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
};
const tidy = (value) => (Math.abs(value) >= 10 ? Math.round(value).toLocaleString("en") : value.toFixed(1));

const NEIGHBOURS = 6;  // pictures of the nearest states, and as many of the farthest

class Explorer {
  constructor(section, table) {
    this.table = table;
    this.goal = -1;
    this.start = 0;
    this.walks = Boolean(table.paths && table.paths.length);
    this.pinned = true;  // with paths: whether the next click chooses a start; otherwise it chooses the goal
    this.panels = [];
    this.peers = [];
    this.frame();
    const name = section.querySelector("h3").textContent;
    const holder = make(section, "div", { class: "panels" });
    const all = sortedNumbers(table.learned.flat());
    const far = quantile(all, 0.98) || 1;
    const over = all[all.length - 1] > far ? " or more" : "";  // the scale ends before the few largest distances
    this.addMap(holder, `Learned distance, steps (${name})`, "learned temporal distance", table.learned, far, `steps${over}`);
    if (table.exact) {
      const end = Math.max(1, ...sortedNumbers(table.exact.flat()).slice(-1));
      this.addMap(holder, `Shortest path, cells (${name})`, "exact shortest path (breadth-first search)", table.exact, end, "cells");
      this.addScatter(holder, far, end);
    }
    this.addPickers(section);
    if (table.pictures) this.addPictures(holder);
    this.choose(this.walks ? this.longest() : 0);
  }

  // The goal to begin with: the farthest of those that the policy reaches from the first start.
  longest() {
    const { paths, exact, starts } = this.table;
    const far = paths.map((row, goal) => (row[0][0] < 0 ? -1 : exact ? exact[goal][starts[0]] ?? 0 : row[0][0]));
    return far.indexOf(Math.max(...far));
  }

  frame() {
    const { points, walls } = this.table;
    const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
    this.left = Math.min(...xs); this.bottom = Math.min(...ys);
    this.width = Math.max(...xs) - this.left || 1; this.height = Math.max(...ys) - this.bottom || 1;
    const margin = walls ? 0.4 * this.table.cell : 0.05 * Math.max(this.width, this.height);
    this.left -= margin; this.bottom -= margin; this.width += 2 * margin; this.height += 2 * margin;
    this.size = 400;
    this.unit = this.size / this.width;
    this.tall = Math.min(Math.max(this.height * this.unit, 160), 600);
    this.unitY = this.tall / this.height;
    this.radius = Math.max(3, 0.42 * Math.sqrt((this.size * this.tall) / points.length) * (walls ? 0.72 : 0.45));
  }

  place([x, y]) { return [(x - this.left) * this.unit, this.tall - (y - this.bottom) * this.unitY]; }

  addMap(holder, label, caption, values, end, unit) {
    const figure = make(holder, "figure");
    const svg = make(figure, "svg", { class: "map pick", viewBox: `0 0 ${this.size} ${this.tall}`, tabindex: "0", role: "img", "aria-label": label });
    if (this.table.walls) {
      make(svg, "rect", { class: "floor", x: 0, y: 0, width: this.size, height: this.tall });
      for (const [x, y, side] of this.table.walls) {
        const [px, py] = this.place([x, y + side]);
        make(svg, "rect", { class: "wall", x: px, y: py, width: side * this.unit + 0.3, height: side * this.unitY + 0.3 });
      }
    }
    const dots = this.table.points.map((point) => {
      const [cx, cy] = this.place(point);
      return make(svg, "circle", { class: "state", cx, cy, r: this.radius });
    });
    const walk = this.walks ? this.addWalk(svg) : null;
    const halo = make(svg, "circle", { class: "goal-halo", r: this.radius + 5, "stroke-width": 6 });
    const ring = make(svg, "circle", { class: "goal-ring", r: this.radius + 5, "stroke-width": 2.5 });
    make(figure, "figcaption", {}, caption.charAt(0).toUpperCase() + caption.slice(1));
    this.addScale(figure, end, unit);
    this.panels.push({ svg, dots, halo, ring, values, end, label, walk });
    this.listen(svg);
  }

  // The places from which paths were recorded, the path, and a dot that walks along it.
  addWalk(svg) {
    const side = 0.9 * this.radius;
    for (const index of this.table.starts) {
      const [x, y] = this.place(this.table.points[index]);
      make(svg, "rect", { class: "start-place", x: x - side, y: y - side, width: 2 * side, height: 2 * side });
    }
    const under = make(svg, "polyline", { class: "path-halo", "stroke-width": 6 });
    const path = make(svg, "polyline", { class: "path", "stroke-width": 2.5 });
    const start = make(svg, "rect", { class: "start", width: 2.6 * side, height: 2.6 * side, "stroke-width": 2.5 });
    return { under, path, start, half: 1.3 * side, walker: make(svg, "circle", { class: "walker", r: 6, "stroke-width": 2 }) };
  }

  addScale(figure, end, unit) {
    const scale = make(figure, "div", { class: "scale", "aria-hidden": "true" });
    make(scale, "span", {}, "near 0");
    const bar = make(scale, "i");
    bar.style.background = `linear-gradient(90deg, ${STOPS.map((_, i) => colour(i / (STOPS.length - 1))).join(", ")})`;
    make(scale, "span", {}, `far ${tidy(end)} ${unit}`);
  }

  addScatter(holder, far, end) {
    const figure = make(holder, "figure");
    const tall = this.tall, wide = this.size, left = 58, bottom = 34;
    const svg = make(figure, "svg", { class: "map", viewBox: `0 0 ${wide} ${tall}`, role: "img" });
    const x = (v) => left + (v / end) * (wide - left - 12);
    const y = (v) => tall - bottom - (Math.min(v, far * 1.05) / (far * 1.05)) * (tall - bottom - 10);
    for (const v of ticks(far)) {
      make(svg, "line", { class: "axis", x1: left, x2: wide - 12, y1: y(v), y2: y(v) });
      make(svg, "text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v));
    }
    for (const v of ticks(end)) make(svg, "text", { x: x(v), y: tall - bottom + 16, "text-anchor": "middle" }, String(v));
    make(svg, "text", { x: (left + wide) / 2, y: tall - 4, "text-anchor": "middle" }, "shortest path, cells");
    const middle = (tall - bottom) / 2;
    make(svg, "text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, "learned distance, steps");
    const line = this.table.profile || [];
    const edge = [...line.map((p) => [x(p[0]), y(p[1])]), ...line.slice().reverse().map((p) => [x(p[0]), y(p[3])])];
    make(svg, "polygon", { class: "quartiles", points: edge.map((p) => p.join(",")).join(" ") });
    make(svg, "polyline", { class: "profile", "stroke-width": 2.5, points: line.map((p) => `${x(p[0])},${y(p[2])}`).join(" ") });
    const dots = this.table.points.map(() => make(svg, "circle", { class: "seen", r: 3.2 }));
    const all = this.table.correlation;
    make(figure, "figcaption", {}, `Learned steps against exact cells: line and band are median and quartiles over all goals (rank correlation ${all === null ? "undefined" : all.toFixed(2)}), dots are the chosen goal`);
    this.scatter = { svg, dots, x, y };
  }

  addPickers(section) {
    const row = make(section, "div", { class: "pickers" });
    const slider = (name, count, act) => {
      const id = `${section.id}-${name.toLowerCase()}`;
      make(row, "label", { for: id }, name);
      const made = make(row, "input", { type: "range", id, min: 0, max: count - 1, step: 1, value: 0 });
      made.addEventListener("input", () => act(Number(made.value)));
      return made;
    };
    this.slider = slider("Goal", this.table.goals.length, (index) => this.choose(index));
    if (this.walks) this.startSlider = slider("Start", this.table.starts.length, (index) => this.chooseStart(index));
    this.said = make(section, "p", { class: "said", role: "status", "aria-live": "polite" });
  }

  // The goal, and the pictured states that the run takes to be nearest to it and farthest from it.
  addPictures(holder) {
    const { jpeg, width, height, columns } = this.table.pictures;
    const file = `url(data:image/jpeg;base64,${jpeg})`, lines = Math.ceil(this.table.pictures.states.length / columns);
    const beside = make(holder, "div", { class: "pictures" });
    const group = (caption, count) => {
      const figure = make(beside, "figure");
      make(figure, "figcaption", {}, caption);
      const row = make(figure, "div", { class: count > 1 ? "row" : "row large" });
      return Array.from({ length: count }, () => {
        const one = make(row, "div", { class: "picture" });
        const image = make(one, "i", { role: "img" });
        image.style.cssText = `background-image:${file};background-size:${columns * 100}% ${lines * 100}%;aspect-ratio:${width}/${height}`;
        return { image, words: make(one, "span") };
      });
    };
    this.shown = { goal: group("Goal", 1), near: group("Nearest states", NEIGHBOURS), far: group("Farthest states", NEIGHBOURS) };
  }

  showPictures(index) {
    const { states, columns } = this.table.pictures, lines = Math.ceil(states.length / columns);
    const row = this.table.learned[index], goal = this.table.goals[index];
    const show = ({ image, words }, slot, text) => {
      const share = (place, count) => (count > 1 ? (100 * place) / (count - 1) : 0);
      image.style.backgroundPosition = `${share(slot % columns, columns)}% ${share(Math.floor(slot / columns), lines)}%`;
      image.style.visibility = words.style.visibility = slot < 0 ? "hidden" : "visible";
      image.setAttribute("aria-label", slot < 0 ? "" : `State, ${text}`);
      words.textContent = text;
    };
    const order = states.map((_, slot) => slot).filter((slot) => states[slot] !== goal && row[states[slot]] !== null);
    order.sort((a, b) => row[states[a]] - row[states[b]]);
    const fill = (places, slots) => places.forEach((place, i) => {
      const slot = i < slots.length ? slots[i] : -1;
      show(place, slot, slot < 0 ? "" : `${tidy(row[states[slot]])} steps`);
    });
    show(this.shown.goal[0], states.indexOf(goal), "");
    this.shown.goal[0].image.setAttribute("aria-label", "The goal");
    fill(this.shown.near, order.slice(0, NEIGHBOURS));
    fill(this.shown.far, order.slice(NEIGHBOURS).slice(-NEIGHBOURS));
  }

  listen(svg) {
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * this.size, ((event.clientY - box.top) / box.height) * this.tall];
    };
    svg.addEventListener("pointermove", (event) => {
      const points = event.pointerType === "mouse" || (event.buttons && !this.walks);
      if (points && !(this.walks && this.pinned)) this.choose(this.nearest(this.table.goals, ...at(event)));
    });
    svg.addEventListener("pointerdown", (event) => {
      if (this.walks) this.pinned = !this.pinned;
      if (this.walks && !this.pinned) this.chooseStart(this.nearest(this.table.starts, ...at(event)));
      else this.choose(this.nearest(this.table.goals, ...at(event)), true);
    });
    const steps = { PageDown: 1, PageUp: -1 };  // to all goals, some of which the arrows do not reach
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    svg.addEventListener("keydown", (event) => {
      if (moves[event.key]) this.choose(this.towards(moves[event.key]));
      else if (event.key === "Home") this.choose(0);
      else if (event.key === "End") this.choose(this.table.goals.length - 1);
      else if (steps[event.key]) this.choose((this.goal + steps[event.key] + this.table.goals.length) % this.table.goals.length);
      else return;
      event.preventDefault();
    });
  }

  at(index) { return this.place(this.table.points[this.table.goals[index]]); }

  nearest(indices, x, y) {
    const gaps = indices.map((point) => { const [px, py] = this.place(this.table.points[point]); return (px - x) ** 2 + (py - y) ** 2; });
    return gaps.indexOf(Math.min(...gaps));
  }

  // The next goal in a direction: near, and not much to the side.
  towards([dx, dy]) {
    const [x, y] = this.at(this.goal);
    let best = this.goal, least = Infinity;
    this.table.goals.forEach((_, i) => {
      const [gx, gy] = this.at(i);
      const along = (gx - x) * dx + (gy - y) * dy, aside = Math.abs((gx - x) * dy) + Math.abs((gy - y) * dx);
      const cost = along + 2.5 * aside;
      if (along > 1 && cost < least) { best = i; least = cost; }
    });
    return best;
  }

  // Runs that were sampled at the same states move together, so that they can be compared.
  follows(other) {
    const { task, sample, points, goals } = this.table, theirs = other.table;
    const same = sample ? sample === theirs.sample : String(theirs.points) === String(points);
    return other !== this && theirs.task === task && same && String(theirs.goals) === String(goals);
  }

  choose(index, again = false) {
    if (index === this.goal && !again) return;
    this.goal = index;
    this.peers.forEach((peer) => peer.choose(index));
    this.slider.value = index;
    const [gx, gy] = this.at(index);
    const words = this.words(index);
    for (const panel of this.panels) {
      const row = panel.values[index];
      panel.dots.forEach((dot, i) => dot.setAttribute("fill", row[i] === null ? "transparent" : colour(row[i] / panel.end)));
      for (const mark of [panel.halo, panel.ring]) { mark.setAttribute("cx", gx); mark.setAttribute("cy", gy); }
      panel.svg.setAttribute("aria-label", `${panel.label}. ${words}`);
    }
    if (this.scatter) this.moveScatter(index);
    if (this.shown) this.showPictures(index);
    if (this.walks) this.walk();
    this.said.textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
  }

  chooseStart(index) {
    this.start = index;
    this.startSlider.value = index;
    this.peers.forEach((peer) => { if (peer.walks && peer.start !== index) peer.chooseStart(index); });
    this.choose(this.goal, true);
  }

  // Draw the path from the chosen start to the chosen goal, and let the dot walk along it.
  walk() {
    const [, ...numbers] = this.table.paths[this.goal][this.start];
    const corners = [];
    for (let i = 0; i < numbers.length; i += 2) corners.push(this.place([numbers[i], numbers[i + 1]]));
    const [x, y] = this.place(this.table.points[this.table.starts[this.start]]);
    const line = corners.map((corner) => corner.join(",")).join(" ");
    for (const { walk } of this.panels) {
      for (const drawn of [walk.under, walk.path]) drawn.setAttribute("points", line);
      walk.start.setAttribute("x", x - walk.half); walk.start.setAttribute("y", y - walk.half);
    }
    const steps = Math.abs(this.table.paths[this.goal][this.start][0]);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    cancelAnimationFrame(this.frameNumber);
    const began = performance.now(), length = this.panels[0].walk.path.getTotalLength();
    const move = (now) => {
      const share = still ? 1 : Math.min(1, Math.max(0, now - began) / Math.min(4000, 18 * steps));
      for (const { walk } of this.panels) {
        const { x, y } = walk.path.getPointAtLength(share * length);
        walk.walker.setAttribute("cx", x); walk.walker.setAttribute("cy", y);
      }
      if (share < 1) this.frameNumber = requestAnimationFrame(move);
    };
    move(began);
  }

  moveScatter(index) {
    const { svg, dots, x, y } = this.scatter;
    dots.forEach((dot, i) => {
      const exact = this.table.exact[index][i], learned = this.table.learned[index][i];
      dot.setAttribute("visibility", exact === null || learned === null ? "hidden" : "visible");
      // Cells are whole numbers: a fixed sideways shift per state keeps dots from hiding each other.
      if (exact !== null && learned !== null) { dot.setAttribute("cx", x(exact) + (((i * 37) % 11) - 5)); dot.setAttribute("cy", y(learned)); }
    });
    svg.setAttribute("aria-label", `Learned distance against shortest path. ${this.words(index)}`);
  }

  words(index) {
    const values = sortedNumbers(this.table.learned[index]);
    const [x, y] = this.table.points[this.table.goals[index]];
    const where = this.table.kind !== "embedding" ? ` at x ${x.toFixed(1)}, y ${y.toFixed(1)}` : "";
    let words = `Goal ${index + 1} of ${this.table.goals.length}${where}: half of the states are within ${tidy(quantile(values, 0.5))} steps, the farthest ${tidy(values.length ? values[values.length - 1] : 0)} away.`;
    const one = this.table.correlations ? this.table.correlations[index] : null;
    if (one !== null && one !== undefined) words += ` Rank correlation with the shortest path: ${one.toFixed(2)}.`;
    if (!this.walks) return words;
    const steps = this.table.paths[index][this.start][0];
    const how = steps > 0 ? `reaches it in ${steps} ${steps === 1 ? "step" : "steps"}` : `does not reach it within ${-steps} steps`;
    return `${words} From start ${this.start + 1} of ${this.table.starts.length} the policy ${how}.`;
  }
}

const explorers = [...document.querySelectorAll("section.explorer")].map((section) => new Explorer(section, PAGE.explorers[Number(section.dataset.index)]));
explorers.forEach((one) => { one.peers = explorers.filter((other) => one.follows(other)); });
