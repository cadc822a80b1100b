// Formulas: Markdown leaves them as \(…\) and \[…\] in elements of class "arithmatex"; KaTeX sets them.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const source = element.textContent.trim();
    const display = source.startsWith("\\[");
    katex.render(source.slice(2, -2), element, { displayMode: display, throwOnError: false });
  }
});
