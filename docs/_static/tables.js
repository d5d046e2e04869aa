// Tables on narrow screens: rows become cards if they hold sentences (site.css), with the
// column's title before each cell. Paths in cells may break at / and _, words nowhere, and
// numbers such as 0.5 ± 0.1 stay on one line.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const titles = [...table.querySelectorAll("thead th")].map((th) => th.textContent.trim());
    const cells = [...table.querySelectorAll("tbody td")];
    const grouped = cells.some((td) => td.cellIndex === 0 && !td.textContent.trim());
    const sentences = cells.some((td) => td.textContent.length > 45);
    if (titles.length <= 5 && sentences && !grouped) {
      table.classList.add("cards");
    }
    for (const td of cells) {
      td.dataset.title = titles[td.cellIndex] || "";
      td.classList.toggle("short", td.textContent.length <= 20);
    }
    for (const code of table.querySelectorAll("td code .pre, td code:not(:has(.pre))")) {
      const parts = code.textContent.split(/(?<=[/_,:=])(?=\w)/);
      code.replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]));
    }
  }
});
