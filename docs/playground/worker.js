// A Web Worker is one program: a service, or the store. The program is Go's, mortise.wasm; this file starts it and
// passes messages to and from it.
//
// Stopping a program is real. The only ways into a Go program are timeouts and messages; all of them go through a gate,
// and behind a closed gate no instruction of the program runs, while the clocks go on: what SIGSTOP does to a process.
"use strict";
importScripts("wasm_exec.js");

const gate = { closed: false, held: [] };

// through is f behind the gate: a call is held, in order, until the gate opens.
function through(f) {
  return (...args) => {
    if (gate.closed) gate.held.push(() => f(...args));
    else f(...args);
  };
}

function open() {
  gate.closed = false;
  worker.press("resume");
  for (const call of gate.held.splice(0)) through(call)();
}

const timeout = self.setTimeout.bind(self);
self.setTimeout = (f, ms) => timeout(through(f), ms);

// wire is a message port as the program has it.
function wire(port) {
  return {
    send: (text) => port.postMessage(text),
    listen: (f) => { port.onmessage = through((event) => f(event.data)); },
  };
}

// worker is what the program finds: its settings, and its ways out. The program adds press, or accept and fence.
self.worker = {
  tell: (what, text) => postMessage({ what, body: JSON.parse(text) }),
  stop: () => { gate.closed = true; },
};

const guests = new Map(); // at the store: what ends the connections of a service

const handlers = {
  async start({ module, ports, ...settings }) {
    Object.assign(worker, settings);
    for (const [name, port] of Object.entries(ports)) worker[name] = wire(port);
    const go = new Go();
    const program = go.run(await WebAssembly.instantiate(module, go.importObject));
    program.then(() => postMessage({ what: "ended" }));
  },
  accept({ name, ports }) {
    guests.set(name, ports.map((port) => worker.accept(name, wire(port))));
  },
  hangUp({ name }) {
    for (const end of guests.get(name) ?? []) end();
    guests.delete(name);
  },
  fence({ on }) { worker.fence(on); },
  press: through(({ button }) => worker.press(button)),
  resume: open,
};

let last = Promise.resolve();
onmessage = ({ data }) => {
  last = last.then(() => handlers[data.call](data));
};
