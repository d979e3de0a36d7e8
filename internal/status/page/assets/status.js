// @ts-check
"use strict";

/**
 * One change of the page, as the server sends it.
 * @typedef {{op: "replace" | "remove" | "insert" | "content", id: string, html?: string, parent?: string, after?: string}} Patch
 */

/** The server's messages keep the page current; without them it is complete, but old. */
(() => {
  const main = document.querySelector("main[data-live]");
  const live = document.getElementById("live");
  if (!(main instanceof HTMLElement) || !live) return;

  /** @type {EventSource | undefined} */
  let source;
  let digest = main.dataset.digest ?? "";

  /**
   * @param {string} text
   * @param {boolean} good
   */
  function say(text, good) {
    if (!live || live.textContent === text) return;
    live.textContent = text;
    live.classList.toggle("lost", !good);
  }

  /**
   * The element of a fragment. Rows are parsed within a table.
   * @param {string} html
   * @returns {Element | null}
   */
  function element(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  }

  /** @param {Patch} patch */
  function apply(patch) {
    const old = document.getElementById(patch.id);
    switch (patch.op) {
      case "remove":
        old?.remove();
        break;
      case "content":
        if (old) old.innerHTML = patch.html ?? "";
        break;
      case "replace": {
        const next = element(patch.html ?? "");
        if (old && next) old.replaceWith(next);
        break;
      }
      case "insert": {
        const next = element(patch.html ?? "");
        const parent = document.getElementById(patch.parent ?? "");
        if (!next || !parent) break;
        old?.remove();
        const before = patch.after ? document.getElementById(patch.after) : null;
        if (before) before.after(next);
        else parent.prepend(next);
        break;
      }
    }
  }

  /**
   * Applies changes; the focus, the place within scrolled tables and the filters stay.
   * @param {Patch[]} patches
   */
  function applyAll(patches) {
    const focus = document.activeElement;
    const href = focus instanceof HTMLAnchorElement ? focus.getAttribute("href") : null;
    const id = focus?.id;
    const scrolls = new Map([...document.querySelectorAll("section[id] .scroll")]
      .map((part) => [part.closest("section")?.id, part.scrollLeft]));
    patches.forEach(apply);
    for (const part of document.querySelectorAll("section[id] .scroll")) {
      part.scrollLeft = scrolls.get(part.closest("section")?.id) ?? 0;
    }
    if (focus && !focus.isConnected) {
      const next = id ? document.getElementById(id) : [...document.querySelectorAll("main a")].find((a) => a.getAttribute("href") === href);
      if (next instanceof HTMLElement) next.focus({ preventScroll: true });
    }
    filters();
  }

  function connect() {
    if (source || document.hidden) return;
    source = new EventSource(`${main instanceof HTMLElement ? main.dataset.live : ""}&digest=${encodeURIComponent(digest)}`);
    source.addEventListener("open", () => say("live", true));
    source.addEventListener("patch", (event) => {
      digest = ""; // what the page shows is not what was served
      applyAll(JSON.parse(event.data));
    });
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) {
        say("not connected: reload the page", false);
        return;
      }
      say("connection lost, connecting again", false);
      if (digest === "") reconnect();
    });
  }

  /** A new connection compares with what the page shows now, which only its own address can say. */
  function reconnect() {
    source?.close();
    source = undefined;
    setTimeout(connect, 2000);
  }

  // A hidden page needs no connection; browsers allow few of them at the same time.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      connect();
      return;
    }
    source?.close();
    source = undefined;
  });

  /** @type {Map<string, string>} */
  const wanted = new Map();

  /** Each long table gets a field that hides the rows that lack a text. */
  function filters() {
    for (const table of document.querySelectorAll("table[data-filter]")) {
      const name = table instanceof HTMLElement ? table.dataset.filter ?? "" : "";
      const section = table.closest("section");
      if (!section) continue;
      let field = section.querySelector("input");
      const rows = table.querySelectorAll("tbody tr");
      if (!field && rows.length > 10) {
        const label = document.createElement("label");
        label.className = "filter";
        label.append(`Show ${name.toLowerCase()} with `);
        field = document.createElement("input");
        field.type = "search";
        field.value = wanted.get(name) ?? "";
        field.addEventListener("input", () => {
          wanted.set(name, field?.value ?? "");
          filters();
        });
        label.append(field);
        section.querySelector("h2")?.after(label);
      }
      const text = (wanted.get(name) ?? "").toLowerCase();
      for (const row of rows) {
        if (row instanceof HTMLElement) row.hidden = text !== "" && !(row.textContent ?? "").toLowerCase().includes(text);
      }
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
    const field = document.querySelector("label.filter input");
    if (!(field instanceof HTMLInputElement)) return;
    event.preventDefault();
    field.focus();
  });

  filters();
  connect();
})();
