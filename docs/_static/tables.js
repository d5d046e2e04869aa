// Tables on narrow screens: rows become cards if they hold sentences (site.css), with the
// column's title before each cell. Long names may break at / and _, words nowhere, and
// numbers such as 0.5 ± 0.1 stay on one line.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const titles = [...table.querySelectorAll("thead th")].map((th) => th.textContent.trim());
    const cells = [...table.querySelectorAll("tbody td")];
    const grouped = cells.some((td) => td.cellIndex === 0 && !td.textContent.trim());
    // A sentence that only names a row of numbers has room in its column.
    const sentences = cells.some(
      (td) => td.textContent.length > 45 && (td.cellIndex > 0 || titles.length === 1),
    );
    const wordy = cells.some((td) => td.cellIndex > 0 && /[a-z]{2}/.test(td.textContent));
    const named = cells.some((td) => td.cellIndex === 0 && td.textContent.length > 45);
    if (titles.length <= 5 && (sentences || (named && wordy)) && !grouped) {
      table.classList.add("cards");
    }
    for (const td of cells) {
      td.dataset.title = titles[td.cellIndex] || "";
      td.classList.toggle("short", td.textContent.length <= 20);
    }
  }
  const codes = "article code.literal .pre, td code .pre, td code:not(:has(.pre))";
  for (const code of document.querySelectorAll(codes)) {
    const inTable = code.closest("td") !== null;
    if (/^-/.test(code.textContent) && code.textContent.length <= 30) {
      code.style.whiteSpace = "nowrap"; // an option such as --trusted-entities
    } else if (inTable || code.textContent.length > 24) {
      const parts = code.textContent.split(/(?<=[/_,:=])(?=\w)/);
      code.replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]));
    }
  }
  // The same for headings that are the name of a method.
  for (const heading of document.querySelectorAll("article :is(h2, h3, h4)")) {
    const name = heading.firstChild;
    if (name.nodeType !== Node.TEXT_NODE || !/^\S{25,}$/.test(name.data)) continue;
    const parts = name.data.split(/(?<=[_.])(?=\w)/);
    name.replaceWith(...parts.flatMap((part) => [part, document.createElement("wbr")]));
  }
});

// Figures of several panels lead to themselves in full size; on a phone they scroll.
window.addEventListener("load", () => {
  for (const image of document.querySelectorAll("article img")) {
    const { naturalWidth: width, naturalHeight: height } = image;
    if (width <= 1.75 * height && width <= 1200) continue;
    image.classList.add("panels");
    image.style.setProperty("--readable", `${Math.round(width * (width > 1050 ? 0.5 : 0.75))}px`);
    if (!image.closest("a")) {
      const link = document.createElement("a");
      link.href = image.src;
      image.replaceWith(link);
      link.append(image);
    }
    image.closest("a").parentElement.classList.add("panels-scroll");
  }
});
