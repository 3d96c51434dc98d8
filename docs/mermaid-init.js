// Draws the diagrams of the pages, and draws them again when the reader selects another theme.
(() => {
  const diagrams = [...document.querySelectorAll("code.language-mermaid")].map((code) => {
    const pre = document.createElement("pre");
    code.parentElement.replaceWith(pre);
    return { pre, source: code.textContent };
  });
  const dark = () => ["ayu", "coal", "navy"].some((theme) => document.documentElement.classList.contains(theme));
  let drawn;
  const draw = () => {
    if (drawn === dark()) return;
    drawn = dark();
    mermaid.initialize({ startOnLoad: false, theme: drawn ? "dark" : "default" });
    for (const { pre, source } of diagrams) {
      pre.className = "mermaid";
      pre.removeAttribute("data-processed");
      pre.textContent = source;
    }
    mermaid.run({ nodes: diagrams.map(({ pre }) => pre) }).then(() => {
      // On a narrow screen, a wide diagram scrolls instead of shrinking until nobody can read it.
      for (const { pre } of diagrams) {
        pre.style.overflowX = "auto";
        const svg = pre.querySelector("svg");
        if (svg) svg.style.minWidth = `min(${svg.style.maxWidth}, 600px)`;
      }
    });
  };
  draw();
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["class"] });
})();
