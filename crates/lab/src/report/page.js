// Tooltips: the text of an element is its <title>. Without this script browsers show it after a delay.
(() => {
  "use strict";
  const tip = document.getElementById("tip");
  for (const title of document.querySelectorAll("svg .v > title")) {
    title.parentNode.dataset.says = title.textContent;
    title.remove();
  }
  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    const place = event.target instanceof Element ? event.target.closest("[data-says]") : null;
    if (!place) return hide();
    tip.textContent = place.dataset.says;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + 14 + width > innerWidth ? event.clientX - 14 - width : event.clientX + 14;
    const top = event.clientY + 14 + height > innerHeight ? event.clientY - 14 - height : event.clientY + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  addEventListener("pointermove", show);
  addEventListener("pointerdown", show);
  addEventListener("scroll", hide, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
