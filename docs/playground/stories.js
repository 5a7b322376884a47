// Stories: what is said, the button that goes on, and what it does. A story awaits what the page shows.
const holds = (name) => (t) => t.until(() => t.lease(name) === "held" && t.ready(name));
const waits = (name) => (t) => t.until(() => t.lease(name) === "waiting" && t.waits(name));

async function lock(t, name) {
  await t.until(() => t.ready(name));
  t.press(name, "lock");
}

async function withdraw(t, name) {
  const before = t.writes().length;
  await t.until(() => t.ready(name));
  t.press(name, "write");
  await t.until(() => t.writes().length > before && t.ready(name));
}

async function unlock(t, name) {
  t.press(name, "lock");
  await t.until(() => t.lease(name) === "none");
}

const begin = {
  label: "A locks",
  act: async (t) => { await lock(t, "A"); await holds("A")(t); },
};
const second = {
  label: "B locks, too",
  act: async (t) => { await lock(t, "B"); await waits("B")(t); },
};
const pause = {
  say: "B waits. Now A is stopped at the worst moment: it has checked its lease, and its next instruction is the write "
    + "of 50. A garbage collector, a hypervisor or a full disk can do that to any program.",
  label: "Pause A",
  meanwhile: "A is stopped, and so is its watchdog. The lease runs down\u2026",
  act: async (t) => { t.press("A", "pause"); await t.until(() => t.paused("A")); await holds("B")(t); },
};
const meanwhile = {
  say: "The lease ended and B got the lock, with a larger token. A has not noticed: it cannot notice anything. For a "
    + "moment two services believe to hold the lock.",
  label: "B withdraws 30 and unlocks",
  act: async (t) => { await withdraw(t, "B"); await unlock(t, "B"); },
};
const late = (t) => {
  const before = t.writes().length;
  t.press("A", "pause");
  return t.until(() => t.writes().length > before && t.lease("A") === "lost" && t.ready("A"));
};

export const stories = [
  {
    id: "wait", title: "Wait and release", steps: [
      { say: "Each service takes the lock before it reads the balance and writes a new one. A is the first.", ...begin },
      {
        say: "A holds the lock. Its lease is short, and A's watchdog renews it each third of that time: see the bar jump "
          + "back. Now B and C want the lock, too.",
        label: "B and C lock",
        act: async (t) => { await lock(t, "B"); await waits("B")(t); await lock(t, "C"); await waits("C")(t); },
      },
      {
        say: "B and C wait in the store's queue, in the order in which they asked. They send nothing while they wait.",
        label: "A withdraws 50 and unlocks",
        act: async (t) => { await withdraw(t, "A"); await unlock(t, "A"); await holds("B")(t); },
      },
      {
        say: "A's release woke B and no other. B got in at once, and read what A wrote.",
        label: "B withdraws 30 and unlocks",
        act: async (t) => { await withdraw(t, "B"); await unlock(t, "B"); await holds("C")(t); },
      },
      { say: "C is served last. No withdrawal is lost: 100 less 50 less 30 is 20." },
    ],
  },
  {
    id: "kill", title: "Kill the holder", steps: [
      { say: "What happens to a lock whose holder dies? A locks.", ...begin },
      { say: "A holds the lock, and its watchdog renews the lease.", ...second },
      {
        say: "B waits. Now the process of A is killed: no Unlock is called, no message is sent.",
        label: "Kill A",
        meanwhile: "A is gone, and its watchdog with it. The lease runs down\u2026",
        act: async (t) => { t.press("A", "kill"); await holds("B")(t); },
      },
      { say: "The lease ended, and the store gave the lock to B. A lock outlives its holder by one lease at the most." },
    ],
  },
  {
    id: "pause", title: "Pause the holder", steps: [
      { say: "Martin Kleppmann's case: a holder that stands still for longer than its lease. A locks, and reads 100.", ...begin },
      { say: "A is about to withdraw 50.", ...second },
      pause,
      meanwhile,
      { say: "The balance is 70. Now A wakes up in the middle of its work.", label: "Resume A", act: late },
      { say: "A wrote 50, computed from the 100 that it had read. B's withdrawal is lost: the balance should be 20. mortise "
          + "ended A's lease, yet no lock can stop a write that is already on its way. Fencing can." },
    ],
  },
  {
    id: "fencing", title: "Pause, with fencing", fenced: true, steps: [
      { say: "The same again, and the account is fenced: it remembers the largest token, and refuses a smaller one. A locks.", ...begin },
      { say: "A is about to withdraw 50. Its write will carry its token.", ...second },
      pause,
      meanwhile,
      { say: "The balance is 70, and the account has seen B's token. Now A wakes up.", label: "Resume A", act: late },
      {
        say: "A's token is older than B's, so the account refused the write. A knows by now that its lock is lost, and can "
          + "start over.",
        label: "A locks and withdraws again",
        act: async (t) => { await lock(t, "A"); await holds("A")(t); await withdraw(t, "A"); await unlock(t, "A"); },
      },
      { say: "100 less 30 less 50 is 20. Nothing is lost, whatever the clocks and the schedulers did." },
    ],
  },
];
