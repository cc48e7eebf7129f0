"use strict";
// Sorts the leaderboard by a column: a click on its head, or #sort=NUMBER in the address.
const board = document.querySelector("#leaderboard");
function value(row, place) {
  const text = row.cells[place].dataset.value;
  return text === undefined || text === "" ? null : Number(text);
}
function sortBy(place, flip) {
  const heads = [...board.tHead.rows[0].cells];
  const lower = heads[place].dataset.better === "lower";
  const named = heads[place].dataset.better === undefined;
  const rising = (named || lower) !== flip;
  const rows = [...board.tBodies[0].rows];
  rows.sort((a, b) => {
    if (named) {
      return a.cells[place].textContent.localeCompare(b.cells[place].textContent) * (rising ? 1 : -1);
    }
    const [x, y] = [value(a, place), value(b, place)];
    if (x === null || y === null) return (x === null) - (y === null);
    return (x - y) * (rising ? 1 : -1);
  });
  board.tBodies[0].append(...rows);
  heads.forEach((head, k) => {
    head.setAttribute("aria-sort", k !== place ? "none" : rising ? "ascending" : "descending");
  });
}
if (board) {
  [...board.tHead.rows[0].cells].forEach((head, place) => {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const rising = (head.dataset.better ?? "lower") === "lower";
      const now = head.getAttribute("aria-sort");
      sortBy(place, now === (rising ? "ascending" : "descending"));
    });
  });
  const asked = /^#sort=(\d+)$/.exec(location.hash);
  if (asked && Number(asked[1]) < board.tHead.rows[0].cells.length) sortBy(Number(asked[1]), false);
}
