// Draws what the server sends. Names and owners are set as text, never as HTML.
const main = document.getElementById("main");
const $ = (id) => document.getElementById(id);
const prefix = main.dataset.prefix;
let state = null, at = 0; // the newest state, and when it came

const span = (ms) => {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
};
const passed = () => performance.now() - at;
const age = (l) => !l.held ? "free" : (l.known ? "" : "at least ") + span(l.age + passed());
const left = (l) => l.left < 0 ? "no end" : !l.held ? "" : span(Math.max(0, l.left - passed()));
const part = (l) => l.left < 0 ? 1 : l.lease > 0 ? Math.max(0, Math.min(1, (l.left - passed()) / l.lease)) : 0;

// say changes a text only where it differs, so that selections and screen readers are left alone.
const say = (x, text) => { if (x.textContent !== String(text)) x.textContent = text; };
const bar = (x, l) => {
  x.firstElementChild.style.transform = `scaleX(${l.held ? part(l) : 0})`;
  x.setAttribute("aria-valuemax", Math.round(Math.max(0, l.lease) / 1000));
  x.setAttribute("aria-valuenow", Math.round(Math.max(0, l.left < 0 ? l.lease : l.left - passed()) / 1000));
  x.setAttribute("aria-valuetext", left(l) || "free");
};
const make = (tag, ...inside) => { const x = document.createElement(tag); x.append(...inside); return x; };

const rows = new Map(); // by name
const row = (l) => {
  let r = rows.get(l.name);
  if (r) return r;
  const a = make("a", make("code", l.name)), meter = make("div", make("span"));
  a.href = "lock?" + new URLSearchParams({name: l.name.startsWith(prefix) ? l.name.slice(prefix.length) : l.name});
  meter.className = "bar";
  meter.setAttribute("role", "meter");
  meter.setAttribute("aria-label", "Time left of the lease, in seconds");
  meter.setAttribute("aria-valuemin", 0);
  const kind = make("small"), owner = make("code"), host = make("small"), rest = make("small");
  const tr = make("tr", make("td", a, kind), make("td", owner, host), make("td"), make("td", meter, rest), make("td"));
  r = {tr, kind, owner, host, meter, rest};
  rows.set(l.name, r);
  return r;
};
const drawList = () => {
  const wanted = $("filter").value.trim().toLowerCase();
  const shown = state.locks.filter((l) => !wanted ||
    [l.name, l.owner, l.host, l.kind].some((x) => x.toLowerCase().includes(wanted)));
  const body = $("locks").tBodies[0];
  const there = new Set(shown.map((l) => l.name));
  for (const [name, r] of rows) if (!there.has(name)) { r.tr.remove(); rows.delete(name); }
  shown.forEach((l, i) => {
    const r = row(l);
    if (body.children[i] !== r.tr) body.insertBefore(r.tr, body.children[i] ?? null);
    say(r.kind, l.kind + (l.token ? `, token ${l.token}` : "") + (l.readers ? `, ${l.readers} ${l.readers === 1 ? "reader" : "readers"}` : ""));
    say(r.owner, l.owner);
    say(r.host, l.host ? `${l.host}, process ${l.pid}` : "");
    say(r.tr.children[2], age(l));
    bar(r.meter, l);
    say(r.rest, left(l));
    say(r.tr.children[4], l.waiters);
  });
  $("locks").hidden = !shown.length;
  $("none").hidden = shown.length > 0;
  say($("none"), state.locks.length ? "None of them matches the filter." : "No lock is held.");
  const more = state.reading ? `, of the first ${state.total} that were read; reading on` :
    state.total > state.locks.length ? `, the ${state.locks.length} oldest of about ${state.total}` : "";
  say($("count"), `${shown.length} shown${more}, oldest first`);
};
const drawLock = () => {
  const l = state.locks[0];
  if (!l) return;
  const of = (name) => main.querySelector(`[data-of="${name}"]`);
  say(of("holder"), l.held ? `held by ${l.owner}` : "free");
  for (const name of ["kind", "host", "holds", "waiters"]) say(of(name), l[name]);
  for (const name of ["pid", "token"]) say(of(name), l[name] || "");
  say(of("age"), age(l));
  say(of("left"), left(l) || "free");
  bar(main.querySelector(".bar"), l);
  const queue = l.queue ?? [];
  const texts = queue.map((w) => w.name + (w.age < 0 ? "" : `, for ${span(w.age + passed())}`));
  while ($("queue").children.length > texts.length) $("queue").lastElementChild.remove();
  texts.forEach((text, i) => say($("queue").children[i] ?? $("queue").appendChild(make("li")), text));
  const form = $("unlock");
  if (!form) return;
  form.hidden = !l.held;
  if (form.owner.value !== l.owner) { // what was confirmed was another owner
    form.owner.value = l.owner;
    form.querySelector("[type=checkbox]").checked = false;
    say(of("owner"), l.owner);
  }
};
const draw = () => {
  if (!state) return;
  $("locks") ? drawList() : drawLock();
  $("problem").hidden = !state.error;
  say($("problem"), state.error ? `The store does not answer; this is the last that was seen. ${state.error}` : "");
};

const connect = () => {
  const events = new EventSource(main.dataset.events);
  events.onmessage = (e) => {
    const [old, text] = e.data.split("\n");
    state = JSON.parse(text);
    at = performance.now() - old;
    say($("live"), "live");
    draw();
  };
  events.onerror = () => {
    say($("live"), "not connected, trying again");
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000); // it gives up when an answer is not 200
  };
};
connect();
$("filter")?.addEventListener("input", draw);
setInterval(draw, 250);
