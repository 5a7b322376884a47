// The page: it starts the workers, passes buttons to them and draws what they tell. No locking is done here.
import { stories } from "./stories.js";

const $ = (id) => document.getElementById(id);
const create = (tag, className, text = "") => Object.assign(document.createElement(tag), { className, textContent: text });
const short = (token) => `\u2026\u2060${String(token).slice(-3)}`; // tokens begin at the clock's milliseconds
const seconds = (ms) => `${(Math.max(ms, 0) / 1000).toFixed(1)} s`;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const opening = 100;
const staff = [["A", 50], ["B", 30], ["C", 10]];

let module;           // mortise.wasm
let store;            // the worker with the store
let state;            // the last that it told
let watchdog = 6000;  // ms
let services = new Map();
let writes = [];
const awaiting = new Set(); // of stories

// --- workers

function begin(settings, ports, heard) {
  const worker = new Worker("worker.js");
  worker.onerror = (event) => fatal(event.message ?? "a worker could not start");
  worker.onmessage = ({ data: { what, body } }) => {
    if (what === "ended") fatal(`the program of ${settings.name ?? "the store"} ended`);
    else heard(what, body);
    changed();
  };
  worker.postMessage({ call: "start", module, ports, ...settings }, Object.values(ports));
  return worker;
}

class Service {
  constructor(name, amount) {
    Object.assign(this, { name, amount, on: false });
    this.card = $("service").content.cloneNode(true).firstElementChild;
    this.card.dataset.service = name;
    this.part = (selector) => this.card.querySelector(selector);
    this.part(".badge").textContent = name;
    this.part("h2").textContent = `Service ${name}`;
    this.part(".bar").setAttribute("aria-label", `Time left of the lease as ${name} knows it, in seconds`);
    for (const button of this.card.querySelectorAll("button")) {
      button.onclick = () => { if (isAble(button)) this.pressed(button.dataset.role); };
    }
    $("services").append(this.card);
  }

  start() {
    const [lockEnd, lockPort] = ends(), [dataEnd, dataPort] = ends();
    this.view = { lease: "none", paused: false, busy: false, ends: 0, left: 0, token: 0, renewals: 0 };
    this.on = true;
    this.worker = begin({ role: "service", name: this.name, watchdog, amount: this.amount },
      { store: lockPort, ledger: dataPort }, (_, event) => this.heard(event));
    store.postMessage({ call: "accept", name: this.name, ports: [lockEnd, dataEnd] }, [lockEnd, dataEnd]);
  }

  // kill ends the program where it stands; the store sees its connections close.
  kill() {
    this.worker.terminate();
    this.on = false;
    store.postMessage({ call: "hangUp", name: this.name });
    tell(this.name, "is killed: it calls no Unlock and sends no message", "bad");
    changed();
  }

  // press sends the program a button. It is busy until the program tells what came of it.
  press(button) {
    this.view.busy = button !== "leave";
    if (button === "lock") this.view.lease = "asking";
    this.worker.postMessage({ call: "press", button });
    changed();
  }

  resume() {
    this.worker.postMessage({ call: "resume" });
  }

  pressed(role) {
    const v = this.view;
    if (role === "lock") this.press({ held: "unlock", waiting: "leave" }[v.lease] ?? "lock");
    else if (role === "write") this.press("write");
    else if (role === "pause") v.paused ? this.resume() : this.press("pause");
    else if (this.on) this.kill();
    else { this.start(); tell(this.name, "starts as a new process"); }
    changed();
  }

  heard(event) {
    if (!this.on) return; // a last word of a program that was killed
    this.view.busy = false;
    hear[event.what](this, this.view, event);
  }

  // wrote is told by the account.
  wrote() { this.view.busy = false; }
}

const ends = () => { const c = new MessageChannel(); return [c.port1, c.port2]; };

// hear is what each event of a service means for its card and for the log.
const hear = {
  started() {},
  waiting(s, v) { v.lease = "waiting"; tell(s.name, "waits: the lock is held"); },
  left(s, v) { v.lease = "none"; tell(s.name, "stops waiting and leaves the queue"); },
  acquired(s, v, e) {
    Object.assign(v, { lease: "held", ends: performance.now() + e.remaining, token: e.token, renewals: 0, busy: true });
    tell(s.name, `gets the lock, with fencing token ${short(e.token)}`, "good");
  },
  read(s, v, e) { tell(s.name, `reads a balance of ${e.balance}`); },
  renewed(s, v, e) {
    v.ends = performance.now() + e.remaining;
    if (++v.renewals === 1) tell(s.name, "has its lease renewed by the watchdog, from now on each third of the lease");
    for (const bar of [s.part(".bar"), $("store-bar")]) pulse(bar);
  },
  released(s, v) { v.lease = "none"; tell(s.name, "unlocks", "good"); },
  lost(s, v) {
    v.lease = "lost";
    tell(s.name, "finds that its lease is over; its lock is lost, and its work is told to stop", "bad");
  },
  refused(s) { tell(s.name, "is told that its write is refused", "bad"); },
  paused(s, v, e) {
    v.paused = true;
    v.left = v.ends - performance.now();
    tell(s.name, e.token ? "is stopped, after it checked its lease and before it writes" : "is stopped", "warn");
  },
  resumed(s, v) { v.paused = false; tell(s.name, "runs again; it does not know that time has passed", "warn"); },
  failed(s, v, e) { if (v.lease === "asking") v.lease = "none"; tell(s.name, `fails: ${e.err}`, "bad"); },
};

function heardFromStore(what, body) {
  if (what === "state") state = body;
  else if (what === "written") written(body);
}

function written(w) {
  services.get(w.by).wrote();
  writes.unshift(w);
  if (!w.accepted) tell("account", `refuses ${w.by}'s write: token ${short(w.token)} is older than ${short(w.newest)}`, "good");
  else if (w.stale) tell("account", `takes ${w.by}'s late write: ${w.was} becomes ${w.balance}, and a withdrawal is lost`, "bad");
  else tell(w.by, `withdraws: the balance is ${w.balance}`);
}

function reset() {
  for (const s of services.values()) if (s.on) s.worker.terminate();
  store?.terminate();
  awaiting.clear();
  $("services").replaceChildren();
  $("log").replaceChildren();
  writes = [];
  state = { held: false, holder: "", remaining: 0, queue: [], balance: opening, newest: 0, fenced: false };
  watchdog = Number($("watchdog").value);
  store = begin({ role: "store", balance: opening }, {}, heardFromStore);
  services = new Map(staff.map(([name, amount]) => [name, new Service(name, amount)]));
  for (const s of services.values()) s.start();
  fence($("fenced").checked);
  changed();
}

function fence(on) {
  $("fenced").checked = on;
  store.postMessage({ call: "fence", on });
  $("fence-hint").textContent = on ? "Refuses a write with an older token than one that has written."
    : "Takes every write, whatever its token.";
}

// --- drawing

function tell(subject, text, mood = "") {
  const row = create("li", mood);
  row.dataset.by = subject;
  row.append(create("time", "", new Date().toTimeString().slice(0, 8)));
  row.append(create("span", "badge", subject.length === 1 ? subject : "$"));
  const names = { account: "The account" };
  row.append(create("span", "", `${names[subject] ?? subject} ${text}.`));
  $("log").prepend(row);
  while ($("log").children.length > 60) $("log").lastElementChild.remove();
}

function pulse(bar) {
  if (!calm.matches) bar.animate([{ filter: "brightness(1.6)" }, { filter: "none" }], { duration: 500, easing: "ease-out" });
}

function draw(bar, left, of) {
  const fraction = Math.min(Math.max(left / of, 0), 1);
  bar.firstElementChild.style.transform = `scaleX(${calm.matches ? Math.ceil(fraction * 20) / 20 : fraction})`;
  bar.setAttribute("aria-valuemax", of / 1000);
  const now = Math.ceil(Math.max(left, 0) / 1000);
  if (bar.getAttribute("aria-valuenow") !== String(now)) bar.setAttribute("aria-valuenow", now);
}

const chips = { none: "idle", asking: "asking", waiting: "waiting", held: "holds the lock", lost: "lost the lock" };

// able switches a button on or off. One that is off keeps the focus, so that keys go on working when it is on again.
function able(button, on) { button.setAttribute("aria-disabled", !on); }
const isAble = (button) => button.getAttribute("aria-disabled") !== "true";

// set changes a text only where it differs, so that readers of the screen are not told twice.
function set(node, text) { if (node.textContent !== text) node.textContent = text; }

function drawService(s) {
  const v = s.view, holds = s.on && v.lease === "held";
  const left = v.paused ? v.left : v.ends - performance.now();
  s.card.dataset.state = !s.on ? "killed" : v.paused ? "paused" : v.lease;
  set(s.part(".chip"), !s.on ? "killed" : v.paused ? "paused" : chips[v.lease]);
  draw(s.part(".bar"), holds ? left : 0, watchdog);
  set(s.part(".belief"), belief(s, v, left));
  const buttons = {
    lock: [{ held: "Unlock", waiting: "Stop waiting" }[v.lease] ?? "Lock", v.lease !== "asking" && !v.busy],
    write: [`Withdraw ${s.amount}`, v.lease === "held" && !v.busy],
    pause: [v.paused ? "Resume" : "Pause", v.paused || !v.busy || v.lease === "waiting"],
    kill: [s.on ? "Kill" : "Start"],
  };
  for (const [role, [label, ready]] of Object.entries(buttons)) {
    const button = s.part(`[data-role=${role}]`);
    set(button, label);
    button.setAttribute("aria-label", `${label}: service ${s.name}`);
    able(button, role === "kill" || (s.on && ready && (!v.paused || role === "pause")));
    button.classList.toggle("primary", role === "lock" && v.lease !== "held" && v.lease !== "waiting");
    button.classList.toggle("danger", role === "kill" && s.on);
  }
}

function belief(s, v, left) {
  if (!s.on) return "No process.";
  if (v.paused) return v.lease === "held" ? "Stopped. It believes to hold the lock." : "Stopped.";
  switch (v.lease) {
    case "held": return `Token ${short(v.token)}, ${seconds(left)} left, renewed ${v.renewals}\u00d7.`;
    case "waiting": return "In the queue. Sends nothing while it waits.";
    case "lost": return "Its context has ended. It may lock again.";
  }
  return "Holds nothing.";
}

function drawStore() {
  const card = $("store"), left = state.remaining - (performance.now() - (state.at ??= performance.now()));
  card.dataset.by = state.held ? state.holder : "";
  card.dataset.state = state.held ? "held" : "free";
  set($("holder"), state.held ? `held by ${state.holder}` : "free");
  set($("left"), state.held ? seconds(left) : "");
  draw($("store-bar"), state.held ? left : 0, watchdog);
  const queue = $("queue"), names = state.queue;
  if (queue.dataset.names !== names.join()) {
    queue.dataset.names = names.join();
    queue.replaceChildren(...names.map((name, i) => {
      const row = create("li", "");
      row.append(Object.assign(create("span", "badge", name), { ariaLabel: `Service ${name}` }), create("span", "", i ? "" : "next"));
      row.dataset.by = name;
      return row;
    }));
    if (!names.length) queue.append(create("li", "none", "No service waits."));
  }
}

function drawLedger() {
  set($("balance"), String(state.balance));
  const list = $("writes");
  if (Number(list.dataset.count) === writes.length) return;
  list.dataset.count = writes.length;
  list.replaceChildren(...writes.slice(0, 4).map((w) => {
    const row = create("li", !w.accepted ? "refused" : w.stale ? "stale" : "");
    row.dataset.by = w.by;
    row.append(create("span", "badge", w.by), create("span", "", `${w.was} \u2192 ${w.balance}`),
      create("code", "", short(w.token)), create("span", "verdict", !w.accepted ? "refused" : w.stale ? "overwrote" : "written"));
    row.title = `fencing token ${w.token}`;
    return row;
  }));
  if (!writes.length) list.append(create("li", "none", "No writes yet."));
}

// changed draws all, and lets stories go on.
function changed() {
  for (const s of services.values()) drawService(s);
  drawStore();
  drawLedger();
  for (const a of awaiting) if (a.happened()) { awaiting.delete(a); a.go(); }
}

let drawn = 0;
function frame(now) {
  if (now - drawn > (calm.matches ? 250 : 30)) {
    drawn = now;
    for (const s of services.values()) drawService(s);
    drawStore();
  }
  requestAnimationFrame(frame);
}

function fatal(text) {
  console.error(text);
  if (!document.querySelector(".fatal")) document.querySelector("main").prepend(create("p", "card fatal", `${text}.`));
}

// --- stories

// until waits for something that the page shows.
const until = (happened) => new Promise((go) => { awaiting.add({ happened, go }); changed(); });

const stage = {
  press: (name, role) => services.get(name).pressed(role),
  fence,
  until,
  lease: (name) => services.get(name).view.lease,
  ready: (name) => !services.get(name).view.busy,
  paused: (name) => services.get(name).view.paused,
  waits: (name) => state.queue.includes(name),
  writes: () => writes,
};

let story, step;

function choose(id) {
  story = stories.find((s) => s.id === id) ?? stories[0];
  step = 0;
  for (const tab of $("tabs").children) tab.setAttribute("aria-pressed", tab.dataset.story === story.id);
  $("fenced").checked = story.fenced ?? false;
  reset();
  show();
}

function show() {
  const { say, label } = story.steps[step];
  $("say").textContent = say;
  $("next").textContent = label ?? "Again";
  able($("next"), true);
  $("dots").replaceChildren(...story.steps.map((_, i) => create("li", i === step ? "now" : i < step ? "past" : "")));
}

async function next() {
  const { act, meanwhile } = story.steps[step];
  if (!act) return choose(story.id);
  const [of, at] = [story, step];
  able($("next"), false);
  if (meanwhile) $("say").textContent = meanwhile;
  await act(stage);
  if (story !== of || step !== at) return; // another story was chosen
  step++;
  show();
}

// --- start

async function compile() {
  const wasm = await fetch("mortise.wasm");
  if (!wasm.ok) throw new Error(`mortise.wasm: ${wasm.status}; build it with make playground`);
  return WebAssembly.compile(await wasm.arrayBuffer());
}

async function main() {
  for (const s of stories) {
    const tab = create("button", "", s.title);
    tab.type = "button";
    tab.dataset.story = s.id;
    tab.onclick = () => { history.replaceState(null, "", `#${s.id}`); choose(s.id); };
    $("tabs").append(tab);
  }
  const asked = new URLSearchParams(location.search), wanted = asked.get("lease");
  document.documentElement.classList.toggle("inside", asked.has("inside")); // in a frame of the site's first page
  if ([...$("watchdog").options].some((o) => o.value === wanted)) $("watchdog").value = wanted;
  module = await compile();
  $("reset").onclick = () => choose(story.id);
  $("watchdog").onchange = () => choose(story.id);
  $("fenced").onchange = (event) => fence(event.target.checked);
  $("next").onclick = () => { if (isAble($("next"))) next(); };
  choose(location.hash.slice(1));
  requestAnimationFrame(frame);
  document.documentElement.dataset.ready = "true";
}

main().catch((err) => fatal(`The playground could not start: ${err.message}`));
