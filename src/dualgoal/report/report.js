"use strict";
// What needs a script: sorting tables and filtering settings; explorer.js and boards.js follow in the same element.
// Everything is built with DOM calls, never from HTML text, so strings from run directories stay strings.
const SVG = "http://www.w3.org/2000/svg";
document.body.classList.add("scripted");

function make(parent, name, attributes = {}, text = null) {
  const svg = parent.namespaceURI === SVG || name === "svg";
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  parent.appendChild(node);
  return node;
}

// Tables ------------------------------------------------------------------------------------------------------------

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.appendChild(button);
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      sortRows(table.tBodies[0], column, rising ? 1 : -1);
    });
  });
}

function sortRows(body, column, sign) {
  const key = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  [...body.rows].map((row) => [key(row), row]).sort((a, b) => sign * order(a[0], b[0])).forEach(([, row]) => body.appendChild(row));
}

document.querySelectorAll("table.sortable").forEach(sortable);
const only = document.getElementById("only-differences");
if (only) only.addEventListener("change", () => document.getElementById("settings").classList.toggle("only", only.checked));

// Colours: viridis from near (dark) to far (bright), as in the pictures of `dualgoal theory` --------------------------

// STOPS are nine of viridis' colours.
const STOPS = [[68, 1, 84], [71, 45, 123], [59, 82, 139], [44, 114, 142], [33, 145, 140], [40, 174, 128], [94, 201, 98], [173, 220, 48], [253, 231, 37]];

function colour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  const mix = STOPS[low].map((a, i) => Math.round(a + (STOPS[low + 1][i] - a) * (place - low)));
  return `rgb(${mix.join(", ")})`;
}

// What explorer.js and boards.js show -------------------------------------------------------------------------------

const PAGE = JSON.parse(document.getElementById("page-data").textContent);
