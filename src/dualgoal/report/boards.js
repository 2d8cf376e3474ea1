// Lights Out: boards to play. A board is a whole number whose bit i is light i; so is a pattern of presses.

const bits = (board, count) => Array.from({ length: count }, (_, i) => (board >> i) & 1);
const weight = (pattern) => { let n = 0; for (; pattern; pattern &= pattern - 1) n += 1; return n; };

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

// A run's network: layers x w + b, each but the last followed by GELU and, where it has a scale, LayerNorm.
class Player {
  constructor(game, about) {
    Object.assign(this, about);
    this.game = game;
    this.layers = about.layers.map((layer) => Object.fromEntries(Object.entries(layer).map(([name, text]) => [name, floats(text)])));
    const all = floats(about.goals), size = all.length / game.tasks.length;
    this.goals = game.tasks.map((_, i) => all.subarray(i * size, (i + 1) * size));
  }

  // A board as the network reads it: its bits, or its exact distances from the anchors.
  sees(board) {
    const n = this.game.count;
    if (!this.anchors) return bits(board, n);
    const pattern = this.game.presses(board);
    const far = this.anchors.map((anchor) => weight(pattern ^ anchor));
    return this.scaled ? far.map((d) => (d - n / 2) / Math.sqrt(n / 4)) : far;
  }

  // The button with the largest value, as the run chooses.
  press(board, task) {
    let x = Float64Array.from([...this.sees(board), ...this.goals[task]]);
    this.layers.forEach((layer, number) => { x = this.apply(layer, x, number < this.layers.length - 1); });
    return x.indexOf(Math.max(...x));
  }

  apply({ w, b, scale, offset }, x, hidden) {
    const y = Float64Array.from(b), wide = b.length;
    x.forEach((value, i) => { if (value) for (let j = 0; j < wide; j += 1) y[j] += value * w[i * wide + j]; });
    if (!hidden) return y;
    const gelu = y.map((u) => 0.5 * u * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (u + 0.044715 * u ** 3))));
    if (!scale) return gelu;
    const mean = gelu.reduce((sum, u) => sum + u, 0) / wide;
    const spread = Math.sqrt(gelu.reduce((sum, u) => sum + (u - mean) ** 2, 0) / wide + 1e-6);
    return gelu.map((u, j) => scale[j] * ((u - mean) / spread) + offset[j]);
  }
}

class Game {
  constructor(section, table) {
    Object.assign(this, table);
    this.count = this.rows * this.columns;
    this.players = table.players.map((about) => new Player(this, about));
    this.addTasks(section);
    const pair = make(section, "div", { class: "pair" });
    this.now = this.addBoard(pair, "Your board", true);
    this.wanted = this.addBoard(pair, "The goal", false);
    this.said = make(section, "p", { class: "said", role: "status", "aria-live": "polite" });
    this.advice = this.players.map((player) => this.addAdvice(section, player));
    this.begin(Math.floor(this.tasks.length / 2));
  }

  presses(board) { return this.inverse.reduce((pattern, image, i) => ((board >> i) & 1 ? pattern ^ image : pattern), 0); }
  distance(board) { return weight(this.presses(board ^ this.goal)); }
  name(button) { return `row ${Math.floor(button / this.columns) + 1}, column ${(button % this.columns) + 1}`; }

  addTasks(section) {
    const row = make(section, "div", { class: "choices", role: "group", "aria-label": "Evaluation goal" });
    this.choices = this.tasks.map(([start, goal], i) => {
      const button = make(row, "button", { type: "button" }, `Goal ${i + 1}: ${weight(this.presses(start ^ goal))} presses`);
      button.addEventListener("click", () => this.begin(i));
      return button;
    });
    make(row, "button", { type: "button" }, "Shuffle").addEventListener("click", () => this.show(Math.floor(Math.random() * 2 ** this.count), "Shuffled."));
  }

  addBoard(pair, caption, playable) {
    const figure = make(pair, "figure");
    const grid = make(figure, "div", { class: "board", style: `--columns: ${this.columns}` });
    make(figure, "figcaption", {}, caption);
    return bits(0, this.count).map((_, button) => {
      const light = make(grid, playable ? "button" : "span", playable ? { type: "button", class: "light" } : { class: "light" });
      if (playable) light.addEventListener("click", () => { this.stop(); this.move(button, "You pressed"); });
      return light;
    });
  }

  addAdvice(section, player) {
    const row = make(section, "p", { class: "advice" });
    const mark = make(row, "span", { class: "mark-of", "aria-hidden": "true" }, this.letter(player));
    mark.style.setProperty("--tone", `var(--c${player.style % 8})`);
    const words = make(row, "span", { class: "words" });
    const button = make(row, "button", { type: "button" }, "Let it play");
    button.addEventListener("click", () => this.play(player));
    return words;
  }

  letter(player) { return player.label.charAt(0).toUpperCase(); }

  begin(task) {
    this.stop();
    this.task = task;
    this.goal = this.tasks[task][1];
    this.choices.forEach((choice, i) => choice.setAttribute("aria-pressed", String(i === task)));
    this.wanted.forEach((light, i) => light.classList.toggle("lit", Boolean((this.goal >> i) & 1)));
    this.show(this.tasks[task][0], "");
  }

  move(button, who) { this.show(this.board ^ this.toggles[button], `${who} ${this.name(button)}.`); }

  show(board, before) {
    this.board = board;
    const far = this.distance(board);
    const lit = bits(board, this.count);
    this.now.forEach((light, i) => {
      light.classList.toggle("lit", Boolean(lit[i]));
      light.setAttribute("aria-label", `${this.name(i)}, ${lit[i] ? "lit" : "dark"}`);
      light.replaceChildren();
    });
    const state = far ? `Exact distance to the goal: ${far} press${far === 1 ? "" : "es"}.` : "Solved: both boards are equal.";
    this.said.textContent = `${before} ${state}`.trim();
    this.players.forEach((player, i) => this.advise(player, this.advice[i], far));
  }

  advise(player, words, far) {
    const about = `${player.label} (seed ${player.seed}, step ${player.step.toLocaleString("en")})`;
    if (!far) { words.textContent = `${about}: nothing to press.`; return; }
    const button = player.press(this.board, this.task);
    const after = this.distance(this.board ^ this.toggles[button]);
    words.textContent = `${about} would press ${this.name(button)}: ${after} to go, ${after < far ? "one nearer" : "one farther"}.`;
    const mark = make(this.now[button], "span", { class: "mark-of", "aria-hidden": "true" }, this.letter(player));
    mark.style.setProperty("--tone", `var(--c${player.style % 8})`);
  }

  stop() { clearTimeout(this.timer); }

  // As in an evaluation: at most as many presses as there are buttons.
  play(player) {
    this.stop();
    let made = 0;
    const next = () => {
      const far = this.distance(this.board);
      if (!far || made >= this.count) {
        const end = far ? `gave up after ${made} presses.` : `solved it in ${made} presses.`;
        if (made) this.show(this.board, `${player.label} ${end}`);
        return;
      }
      made += 1;
      this.move(player.press(this.board, this.task), `${made}: ${player.label} pressed`);
      this.timer = setTimeout(next, 350);
    };
    next();
  }
}

const games = [...document.querySelectorAll("section.game")].map((section) => new Game(section, PAGE.games[Number(section.dataset.index)]));
