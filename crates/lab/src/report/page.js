// Tooltips: the text of an element is its <title>. Without this script browsers show it after a delay.
// Links: a link to a part of the page opens what contains it.
// Filter: a button shows only the rows that have its badge, and opens what contains them; pressed again, all.
// Keys: in a chart that has the focus, the arrow keys select an element and show its tooltip. Left and right
// scroll a chart whose elements stand one below the other.
// Wide parts: a part that scrolls sideways says so.
(() => {
  "use strict";
  const tip = document.getElementById("tip");
  for (const title of document.querySelectorAll("svg .v > title")) {
    title.parentNode.dataset.says = title.textContent;
    title.remove();
  }
  let selected = null;
  const hide = () => {
    tip.hidden = true;
    selected?.classList.remove("now");
    selected = null;
  };
  const show = (place, x, y) => {
    if (tip.textContent !== place.dataset.says) tip.textContent = place.dataset.says;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
    const top = y + 14 + height > innerHeight ? y - 14 - height : y + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const point = (event) => {
    const place = event.target instanceof Element ? event.target.closest("[data-says]") : null;
    hide();
    if (place) show(place, event.clientX, event.clientY);
  };
  const follow = () => {
    if (!selected) return hide();
    const box = selected.getBoundingClientRect();
    show(selected, box.x + box.width / 2, box.y + box.height / 2);
  };
  const press = (event) => {
    const places = [...event.currentTarget.querySelectorAll("[data-says]")];
    const across = places.filter((place) => place.getAttribute("y") === places[0].getAttribute("y")).length;
    const side = across > 1 ? 1 : 0;
    const step = { ArrowLeft: -side, ArrowRight: side, ArrowUp: -across, ArrowDown: across }[event.key];
    const now = places.indexOf(selected);
    const next = places[now < 0 ? 0 : now + step];
    if (!step || !next) return;
    event.preventDefault();
    hide();
    selected = next;
    selected.classList.add("now");
    selected.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    follow();
  };
  for (const chart of document.querySelectorAll("figure > .wide")) {
    chart.addEventListener("keydown", press);
    chart.addEventListener("blur", hide);
  }
  const sized = new ResizeObserver((boxes) => {
    for (const { target } of boxes) target.classList.toggle("more", target.scrollWidth > target.clientWidth + 1);
  });
  for (const box of document.querySelectorAll(".wide")) sized.observe(box);
  const open = (place) => {
    for (let at = place; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  };
  const reach = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    open(target);
    target?.scrollIntoView();
  };
  const buttons = [...document.querySelectorAll(".filter button")];
  const words = buttons.map((button) => button.textContent);
  const filter = (event) => {
    const chosen = event.currentTarget.ariaPressed === "true" ? null : event.currentTarget;
    for (const button of buttons) button.ariaPressed = String(button === chosen);
    for (const row of document.querySelectorAll("tbody tr")) {
      const badges = [...row.querySelectorAll(".badge")].map((badge) => badge.textContent);
      const matches = badges.includes(chosen?.textContent);
      row.hidden = chosen !== null && !matches && badges.some((badge) => words.includes(badge));
      if (matches) open(row);
    }
  };
  for (const button of buttons) {
    button.disabled = false;
    button.addEventListener("click", filter);
  }
  addEventListener("hashchange", reach);
  if (location.hash) reach();
  addEventListener("pointermove", point);
  addEventListener("pointerdown", point);
  addEventListener("scroll", follow, { passive: true, capture: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
