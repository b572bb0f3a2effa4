"use strict";
const tabs = [...document.querySelectorAll("[role=tab]")];
function show(tab, focus) {
  for (const t of tabs) {
    const on = t === tab;
    t.setAttribute("aria-selected", on);
    t.tabIndex = on ? 0 : -1;
    document.getElementById(t.getAttribute("aria-controls")).hidden = !on;
  }
  if (focus) { tab.focus(); history.replaceState(null, "", "#" + tab.id); }
}
tabs.forEach((tab, k) => {
  tab.addEventListener("click", () => show(tab, true));
  tab.addEventListener("keydown", e => {
    const to = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: tabs.length - 1 }[e.key];
    if (to !== undefined) { e.preventDefault(); show(tabs[(to + tabs.length) % tabs.length], true); }
  });
});
function follow() { show(tabs.find(t => "#" + t.id === location.hash) || tabs[0], false); }
addEventListener("hashchange", follow);
follow();
Charts.showAll();
// A printed page has no tabs, so all charts must be drawn.
addEventListener("beforeprint", () => {
  for (const panel of document.querySelectorAll("[role=tabpanel]")) panel.hidden = false;
  document.querySelectorAll(".plot").forEach(Charts.draw);
});
addEventListener("afterprint", follow);
// A policy moves when its button is pressed; until then, its first frame is shown.
for (const button of document.querySelectorAll("button[data-moving]")) {
  const image = document.getElementById(button.getAttribute("aria-controls"));
  const still = image.src;
  button.addEventListener("click", () => {
    const playing = button.getAttribute("aria-pressed") === "true";
    image.src = playing ? still : button.dataset.moving;
    button.setAttribute("aria-pressed", !playing);
    button.textContent = playing ? "Play" : "Stop";
  });
}
