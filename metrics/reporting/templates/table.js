// Sorts the table by the button of a column, and opens and closes the rows of evidence.
document.documentElement.classList.add("js");
for (const table of document.querySelectorAll("table.trials")) {
  const bodies = [...table.tBodies];
  for (const button of table.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th"), column = head.cellIndex;
      const rises = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rises ? "ascending" : "descending");
      const value = (body) => body.rows[0].cells[column].dataset.value ?? "";
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // unknown goes last
        const both = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return rises ? both : -both;
      };
      table.append(...bodies.sort(order));
    });
  }
  for (const button of table.querySelectorAll("td button[aria-expanded]")) {
    button.addEventListener("click", () => {
      const opens = button.getAttribute("aria-expanded") === "false";
      button.setAttribute("aria-expanded", String(opens));
      button.closest("tbody").classList.toggle("open", opens);
    });
  }
}
