// Opens a report or pictures in headless Chromium and prints the observations as JSON on standard output.
//
//     node browse.mjs CHROMIUM FOLDER REPORT.html
//     node browse.mjs CHROMIUM FOLDER PICTURE.svg…
//
// Purpose   make observations that need a browser: requests, errors, tooltips, downloads, dark mode, the
//           accessibility tree, the order of the tab key, and the layout at three widths and on paper.
// Method    use the DevTools protocol over two pipes (--remote-debugging-pipe), which needs no package, port or
//           network.
// FOLDER    the directory for screenshots (light, dark, one for each width), the printed page and the
//           downloaded file.
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [chromium, folder, ...files] = process.argv.slice(2);
const downloads = resolve(join(folder, "downloads"));
mkdirSync(downloads, { recursive: true });

const browser = spawn(
  chromium,
  [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
    `--user-data-dir=${resolve(join(folder, "profile"))}`, "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1280,900", "about:blank",
  ],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);
browser.on("error", (error) => fail(error.message));
browser.on("exit", (code) => { if (!done) fail(`the browser ended with ${code}`); });
let done = false;
const end = async (answer) => {
  done = true;
  console.log(JSON.stringify(answer));
  await call("Browser.close").catch(() => {});
  process.exit(0);
};
const fail = (message) => {
  console.error(message);
  browser.kill();
  process.exit(1);
};

// ---- The protocol: JSON with a zero byte after each message --------------------------------------------------------------
const [, , , down, up] = browser.stdio;
const waiting = new Map();
const listeners = new Set();
let number = 0;
let rest = "";
up.setEncoding("utf8");
up.on("data", (data) => {
  const messages = (rest + data).split("\0");
  rest = messages.pop();
  for (const message of messages.map((text) => JSON.parse(text))) {
    const { resolve, reject } = waiting.get(message.id) ?? {};
    waiting.delete(message.id);
    if (message.error) reject?.(new Error(JSON.stringify(message.error)));
    else if (message.id) resolve?.(message.result);
    else listeners.forEach((listener) => listener(message));
  }
});
const call = (method, params = {}, sessionId = undefined) =>
  new Promise((resolve, reject) => {
    number += 1;
    waiting.set(number, { resolve, reject });
    down.write(JSON.stringify({ id: number, method, params, sessionId }) + "\0");
  });
const event = (name, wanted = () => true) =>
  new Promise((resolve) => {
    const listener = (message) => {
      if (message.method !== name || !wanted(message.params)) return;
      listeners.delete(listener);
      resolve(message.params);
    };
    listeners.add(listener);
  });

// ---- A page that records its events ----------------------------------------------------------------------------------
const { targetId } = await call("Target.createTarget", { url: "about:blank" });
const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
const page = (method, params) => call(method, params, sessionId);
const run = async (expression) => {
  const { result, exceptionDetails } = await page("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
};
const requests = [];
const complaints = [];
listeners.add(({ method, params }) => {
  if (method === "Network.requestWillBeSent") requests.push(params.request.url.slice(0, 200));
  if (method === "Runtime.exceptionThrown") complaints.push(params.exceptionDetails.text);
  if (method === "Runtime.consoleAPICalled") complaints.push(`console.${params.type}`);
  if (method === "Log.entryAdded") complaints.push(params.entry.text);
});
for (const domain of ["Page", "Runtime", "Network", "Log", "Accessibility", "DOM"]) await page(`${domain}.enable`);
await page("Network.emulateNetworkConditions", { offline: true, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
const scheme = (value) => page("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
const size = (width, height) =>
  page("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
const open = async (file = files[0]) => {
  const loaded = event("Page.loadEventFired");
  await page("Page.navigate", { url: pathToFileURL(resolve(file)).href });
  await loaded;
};
const capture = async (name, clip) => {
  const { data } = await page("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip });
  writeFileSync(join(folder, `${name}.png`), Buffer.from(data, "base64"));
};
// Captures the whole page, in pieces of viewable size.
const shot = async (name, piece = 1600) => {
  const { width, height } = (await page("Page.getLayoutMetrics")).cssContentSize;
  for (let y = 0, number = 1; y < height; y += piece, number += 1)
    await capture(`${name}-${String(number).padStart(2, "0")}`, { x: 0, y, width, height: Math.min(piece, height - y), scale: 1 });
};
// Contrast between text and background according to WCAG: the minimum over all visible text.
const contrast = `(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  // In a picture of its own, the text lies on the topmost filled shape below it.
  const isFilled = (one) => getComputedStyle(one).fill !== "none" && getComputedStyle(one).fillOpacity > 0;
  const below = (text) => {
    const { x, y, width, height } = text.getBoundingClientRect();
    const shape = document.elementsFromPoint(x + width / 2, y + height / 2)
      .find((one) => one instanceof SVGGeometryElement && isFilled(one));
    return shape ? numbers(getComputedStyle(shape).fill) : [255, 255, 255];
  };
  const behind = (element) => {
    if (document.documentElement instanceof SVGElement) return below(element);
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let least = { ratio: 99 };
  for (const one of document.querySelectorAll("p, h1, h2, h3, th, td, a, summary, caption, li, .badge, .note, button, figcaption span, svg text:not([class*=' on'])")) {
    const style = getComputedStyle(one);
    const [front, back] = [light(numbers(one instanceof SVGElement ? style.fill : style.color)), light(behind(one))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < least.ratio) least = { ratio, text: one.textContent.slice(0, 40), class: one.getAttribute("class") };
  }
  // The text of a cell lies on the rectangle before it.
  for (const one of document.querySelectorAll("svg text[class*=' on']")) {
    const [front, back] = [light(numbers(getComputedStyle(one).fill)), light(numbers(getComputedStyle(one.previousElementSibling).fill))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < least.ratio) least = { ratio, text: one.textContent.slice(0, 40), class: one.getAttribute("class") };
  }
  return least;
})()`;

// The layout: how far the page scrolls sideways (wide elements scroll within their own frames), texts that a
// figure clips, texts of one figure that overlap, and words that a cell of a table breaks.
const layout = `(() => {
  const clipped = [];
  const overlapping = [];
  for (const svg of document.querySelectorAll("svg")) {
    if (!svg.checkVisibility()) continue;
    const frame = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll("text")].map((text) => {
      const { x, y, width, height } = text.getBBox();
      // A picture of its own moves its texts below the title.
      const { e, f } = svg.getScreenCTM().inverse().multiply(text.getScreenCTM());
      return { says: text.textContent, box: { x: x + e, y: y + f, width, height } };
    });
    const name = svg.querySelector("title")?.textContent.slice(0, 40);
    for (const { says, box } of texts)
      if (box.x < -1 || box.y < -1 || box.x + box.width > frame.width + 1 || box.y + box.height > frame.height + 1)
        clipped.push(name + ": " + says);
    texts.forEach(({ says, box: one }, number) => {
      for (const { says: other, box: two } of texts.slice(number + 1)) {
        const across = Math.min(one.x + one.width, two.x + two.width) - Math.max(one.x, two.x);
        const down = Math.min(one.y + one.height, two.y + two.height) - Math.max(one.y, two.y);
        // The boxes are as high as the font's longest letters.
        if (across > 1 && down > 5) overlapping.push(name + ": " + says + " | " + other);
      }
    });
  }
  // A box whose contents are wider than it must say so, and be reachable with the keyboard.
  const silent = [...document.querySelectorAll("body *")].filter((one) => {
    if (!(one instanceof HTMLElement) || one.querySelector("a:not(td a)")) return false;
    const hides = one.checkVisibility() && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0;
    if (!hides || !["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(one).overflowX)) return false;
    return one.tabIndex !== 0 || getComputedStyle(one, "::before").content === "none";
  }).map((one) => one.outerHTML.slice(0, 100));
  // A word with parts on two lines. Longer words may be broken: no column is wide enough for some.
  const broken = [];
  for (const cell of document.querySelectorAll("th, td")) {
    if (!cell.checkVisibility()) continue;
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode())
      for (const { 0: word, index } of texts.currentNode.data.matchAll(/[\\p{Script=Latin}\\p{N}_]{2,24}/gu)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, index);
        range.setEnd(texts.currentNode, index + word.length);
        if (new Set([...range.getClientRects()].map((box) => Math.round(box.y))).size > 1) broken.push(word);
      }
  }
  const { scrollWidth, clientWidth, scrollHeight } = document.documentElement;
  return { overflow: scrollWidth - clientWidth, height: scrollHeight, clipped, overlapping, silent, broken };
})()`;

const ground = () => run("getComputedStyle(document.body).backgroundColor");

// Pictures of their own: only their texts.
if (files.every((file) => file.endsWith(".svg"))) {
  const pictures = [];
  for (const file of files) {
    await open(file);
    await size(...(await run(`(({ width, height }) => [width, height].map(Math.ceil))(document.documentElement.getBoundingClientRect())`)));
    const { clipped, overlapping } = await run(layout);
    const ratios = [];
    for (const value of ["light", "dark"]) {
      await scheme(value);
      ratios.push(await run(contrast));
    }
    pictures.push({ file, clipped, overlapping, texts: await run(`document.querySelectorAll("text").length`), ratios });
  }
  await end(pictures);
}

await size(1280, 900);
await scheme("light");
await open();
const answer = { light: await ground() };
await shot("light");

// Tooltips: hover over the middle of one element of each kind.
answer.hover = [];
const kinds = [".hit", ".cell", ".bar"];
for (const kind of kinds) {
  const place = await run(`(() => {
    const place = document.querySelector("svg ${kind}");
    if (!place) return null;
    for (let at = place; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    place.scrollIntoView({ block: "center", behavior: "instant" });
    const box = place.getBoundingClientRect();
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  })()`);
  if (!place) continue;
  // Scrolling hides tooltips, and the scroll event may come late: move the pointer until the tooltip is shown.
  let says = null;
  for (let turn = 0; turn < 30 && says === null; turn += 1) {
    await page("Input.dispatchMouseEvent", { type: "mouseMoved", x: place.x + (turn % 2), y: place.y });
    await run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    says = await run(`(() => { const tip = document.getElementById("tip"); return tip.hidden ? null : tip.textContent; })()`);
  }
  answer.hover.push({ kind, says });
  if (kind === ".hit") {
    const y = await run("scrollY");
    await capture("hover", { x: 0, y, width: 1280, height: 900, scale: 1 });
  }
}
await page("Input.dispatchMouseEvent", { type: "mouseMoved", x: 1, y: 1 });
answer.hoverEnds = await run(`document.getElementById("tip").hidden`);

// Download: compare the first figure's CSV with the data in the figure.
await call("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: downloads, eventsEnabled: true });
const ended = event("Browser.downloadProgress", ({ state }) => state !== "inProgress");
await run(`document.querySelector('a[download$=".csv"]').click()`);
answer.download = { state: (await ended).state, files: readdirSync(downloads) };
answer.download.text = answer.download.files.map((name) => readFileSync(join(downloads, name), "utf8"))[0];
answer.download.expected = await run(`(() => {
  const link = document.querySelector('a[download$=".csv"]');
  return new TextDecoder().decode(Uint8Array.from(atob(link.href.split(",")[1]), (one) => one.charCodeAt(0)));
})()`);

// The filter: how many rows with each badge are visible while the first button is pressed, and afterwards.
const rows = () => run(`(() => {
  const count = {};
  for (const one of document.querySelectorAll("tbody tr .badge"))
    if (one.checkVisibility()) count[one.textContent] = (count[one.textContent] ?? 0) + 1;
  return count;
})()`);
const press = () => run(`document.querySelector(".filter button")?.click()`);
answer.filter = { badge: await run(`document.querySelector(".filter button")?.textContent ?? null`) };
await press();
answer.filter.pressed = await rows();
await shot("filter");
await press();
answer.filter.released = await rows();

// The accessibility tree, for screen readers. What is folded is not part of it.
const unfold = (open) => run(`document.querySelectorAll("details").forEach((one) => { one.open = ${open}; })`);
await unfold(true);
const { nodes } = await page("Accessibility.getFullAXTree");
const named = nodes.filter((node) => !node.ignored && ["image", "img", "graphics-document"].includes(node.role?.value));
answer.images = named.map((node) => ({ name: node.name?.value ?? "", description: node.description?.value ?? "" }));
await unfold(false);
answer.svgs = await run(`document.querySelectorAll("svg").length`);
answer.headings = await run(`[...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].map((one) => Number(one.tagName[1]))`);
answer.tables = await run(`[...document.querySelectorAll("table")].filter((one) => !one.caption || !one.querySelector("th[scope=col]")).length`);
answer.dead = await run(`[...document.querySelectorAll('a[href^="#"]')].filter((one) => !document.getElementById(one.hash.slice(1))).map((one) => one.hash)`);
answer.contrastLight = await run(contrast);

await scheme("dark");
answer.dark = await ground();
answer.contrastDark = await run(contrast);
await shot("dark");

// Tables that are cut off on a wide screen. The data of a picture may have any number of columns.
const cut = `[...document.querySelectorAll(".wide:has(table):not(figure details .wide)")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.getAttribute("aria-label"))`;
await scheme("light");
answer.layouts = [];
for (const width of [360, 800, 1200]) {
  await size(width, 900);
  for (const open of [false, true]) {
    await unfold(open);
    // The hint of a box that scrolls appears in the next frame.
    await run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    answer.layouts.push({ width, open, ...(await run(layout)), cut: width > 1000 ? await run(cut) : [] });
  }
  await unfold(false);
  await shot(`width-${width}`);
}

// The checks find a text outside of its figure, and one on top of another.
answer.canary = await run(`(() => {
  const svg = document.querySelector("svg");
  const copies = [0, 1].map(() => svg.appendChild(svg.querySelector("text").cloneNode(true)));
  copies[1].setAttribute("x", -500);
  const { clipped, overlapping } = ${layout};
  copies.forEach((copy) => copy.remove());
  return [clipped.length, overlapping.length];
})()`);

// Paper: the number of pages, and captions or figures that may be divided.
const { data } = await page("Page.printToPDF", { printBackground: true });
const printed = Buffer.from(data, "base64");
writeFileSync(join(folder, "printed.pdf"), printed);
await page("Emulation.setEmulatedMedia", { media: "print" });
await size(720, 1000);
answer.print = {
  pages: printed.toString("latin1").match(/\/Type\s*\/Page\b/g)?.length ?? 0,
  divided: await run(`[...document.querySelectorAll("figure, tr")].filter((one) => getComputedStyle(one).breakInside !== "avoid").length`),
  orphans: await run(`[...document.querySelectorAll("figcaption, caption, h2, h3")].filter((one) => getComputedStyle(one).breakAfter !== "avoid").length`),
  layouts: [],
};
for (const open of [false, true]) {
  await unfold(open);
  answer.print.layouts.push({ open, ...(await run(layout)) });
}
await unfold(false);
await page("Emulation.setEmulatedMedia", { media: "" });

// Keys: the tab key visits the elements in the order of the page, and charts among them; an arrow key in a
// chart shows the tooltip of its first element.
await size(1400, 900);
await run(`document.activeElement.blur(); scrollTo(0, 0)`);
const key = async (key, code) => {
  await page("Input.dispatchKeyEvent", { type: "rawKeyDown", key, code: key, windowsVirtualKeyCode: code });
  await page("Input.dispatchKeyEvent", { type: "keyUp", key, code: key, windowsVirtualKeyCode: code });
};
answer.tabs = [];
for (let turn = 0; turn < 40; turn += 1) {
  await key("Tab", 9);
  const stop = await run(`(() => {
    const one = document.activeElement;
    if (one === document.body) return null;
    const style = getComputedStyle(one);
    return {
      place: [...document.querySelectorAll("*")].indexOf(one),
      isChart: one.matches("figure > .wide") && one.querySelector("svg") !== null,
      isOutlined: style.outlineStyle !== "none" || one.matches(".skip"),
      says: (one.getAttribute("aria-label") ?? one.textContent).slice(0, 60),
    };
  })()`);
  if (!stop || stop.place < (answer.tabs.at(-1)?.place ?? -1)) break;
  answer.tabs.push(stop);
}
answer.unreachable = await run(`[...document.querySelectorAll("svg")].filter((one) => one.closest("figure > .wide")?.tabIndex !== 0).length`);
await run(`document.querySelector("figure > .wide").focus()`);
await key("ArrowDown", 40);
answer.arrow = await run(`document.getElementById("tip").hidden ? null : document.getElementById("tip").textContent`);

// The contents: a link opens the section, and stays visible.
await run(`document.querySelectorAll("details").forEach((one) => { one.open = false; })`);
answer.contents = await run(`(async () => {
  const links = [...document.querySelectorAll("nav a")];
  if (links.length === 0) return null;
  const moved = new Promise((done) => addEventListener("hashchange", done, { once: true }));
  links.at(-1).click();
  await moved;
  const target = document.getElementById(links.at(-1).hash.slice(1));
  const box = document.querySelector("nav").getBoundingClientRect();
  return { opened: target.closest("details")?.open ?? true, isVisible: box.top >= 0 && box.bottom <= innerHeight };
})()`);

// Without JavaScript, the elements must still have tooltips.
await size(1280, 900);
await page("Emulation.setScriptExecutionDisabled", { value: true });
await open();
const { root } = await page("DOM.getDocument", { depth: 0 });
answer.plain = (await page("DOM.querySelectorAll", { nodeId: root.nodeId, selector: "svg .v > title" })).nodeIds.length;

answer.requests = requests;
answer.complaints = complaints;
await end(answer);
