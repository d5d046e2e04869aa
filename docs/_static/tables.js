// Tables on narrow screens: rows become cards if they hold sentences (site.css), with the
// column's title before each cell. Paths in cells may break at / and _, words nowhere.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const titles = [...table.querySelectorAll("thead th")].map((th) => th.textContent.trim());
    const cells = [...table.querySelectorAll("tbody td")];
    if (titles.length <= 5 && cells.some((td) => td.textContent.length > 36)) {
      table.classList.add("cards");
    }
    for (const td of cells) td.dataset.title = titles[td.cellIndex] || "";
    for (const code of table.querySelectorAll("td code .pre, td code:not(:has(.pre))")) {
      const parts = code.textContent.split(/(?<=[/_.,:=])(?=\w)/);
      code.replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]));
    }
  }
});
