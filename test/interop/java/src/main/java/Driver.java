import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.redisson.Redisson;
import org.redisson.RedissonBaseLock;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SingleServerConfig;

/**
 * Lets the Go tests use Redisson. Each line of standard input is a {@link Request}, each line of
 * standard output the {@link Reply} to one of them, in the order in which they are done. Requests
 * with the same "thread" run one after the other on one Java thread, which is to Redisson the
 * owner; others run side by side. The program ends with its standard input.
 */
public final class Driver {
  /** Times are in milliseconds; lease 0 is the watchdog. */
  static final class Request {
    long id;
    String op;
    String client;
    String thread;
    String kind;
    String name;
    long lease;
    long wait; // 0 is not to wait, a negative one has no end
    String owner; // a client's id
    long of;
    int count;
    String permit;
    List<Part> parts;
    List<String> nodes;
    boolean cluster;
    boolean sharded;
    long watchdog;
  }

  /** One of the locks of a MultiLock or RedLock, each maybe of a client of its own. */
  static final class Part {
    String client;
    String name;
  }

  /** Only the fields that the operation has something to say about are set. */
  static final class Reply {
    long id;
    Boolean ok;
    Long number;
    String text;
    State state;
    String error;
    String message;
  }

  static final class State {
    boolean locked;
    boolean held; // by the thread that asks
    int holds; // of the thread that asks
    long remaining;
  }

  /** A thread that the tests know by name. */
  static final class Worker extends Thread {
    final LinkedBlockingQueue<Runnable> work = new LinkedBlockingQueue<>();

    Worker(String name) {
      super(name);
      setDaemon(true);
      start();
    }

    @Override
    public void run() {
      while (true) {
        try {
          work.take().run();
        } catch (InterruptedException again) {
          // meant for an operation that was over
        }
      }
    }
  }

  private static final Gson gson = new Gson();
  private static final PrintStream out =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
  private static final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
  private static final Map<String, Worker> workers = new ConcurrentHashMap<>();

  public static void main(String[] args) throws Exception {
    System.setOut(System.err); // standard output is the tests'
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      Request r = gson.fromJson(line, Request.class);
      if (r.op.equals("sleeps")) {
        sleeps(r);
        continue;
      }
      workers.computeIfAbsent(r.thread, Worker::new).work.add(() -> answer(r));
    }
    System.exit(0);
  }

  /** Tells of another thread whether it sleeps until Redisson has a message for it. */
  private static void sleeps(Request r) {
    Reply reply = new Reply();
    Worker w = workers.get(r.thread);
    reply.ok = w != null
        && (w.getState() == Thread.State.WAITING || w.getState() == Thread.State.TIMED_WAITING)
        && Arrays.stream(w.getStackTrace()).map(StackTraceElement::getClassName).anyMatch(
            c -> c.equals("java.util.concurrent.Semaphore") || c.endsWith(".ReclosableLatch"));
    say(r, reply);
  }

  private static void answer(Request r) {
    Reply reply = new Reply();
    try {
      run(r, reply);
    } catch (Throwable e) {
      reply.error = e.getClass().getSimpleName();
      reply.message = String.valueOf(e.getMessage());
    }
    say(r, reply);
  }

  private static void say(Request r, Reply reply) {
    reply.id = r.id;
    String line = gson.toJson(reply) + "\n";
    synchronized (out) {
      out.print(line);
      out.flush();
    }
  }

  private static void run(Request r, Reply reply) throws Exception {
    switch (r.op) {
      case "open" -> {
        RedissonClient client = Redisson.create(config(r));
        clients.put(r.client, client);
        reply.text = client.getId();
      }
      case "close" -> clients.remove(r.client).shutdown(0, 5, TimeUnit.SECONDS);
      case "thread" -> reply.number = Thread.currentThread().getId();
      case "hash" -> reply.text = gson.toJson(
          clients.get(r.client).getMap(r.name, StringCodec.INSTANCE).readAllMap());
      default -> {
        switch (r.kind) {
          case "semaphore" -> semaphore(r, clients.get(r.client).getSemaphore(r.name), reply);
          case "permits" ->
              permits(r, clients.get(r.client).getPermitExpirableSemaphore(r.name), reply);
          case "latch" -> latch(r, clients.get(r.client).getCountDownLatch(r.name), reply);
          default -> lock(r, lockOf(r), reply);
        }
      }
    }
  }

  private static void semaphore(Request r, RSemaphore s, Reply reply) throws Exception {
    switch (r.op) {
      case "acquire" -> {
        if (r.wait < 0) {
          s.acquire(r.count);
          reply.ok = true;
        } else if (r.wait == 0) {
          reply.ok = s.tryAcquire(r.count);
        } else {
          reply.ok = s.tryAcquire(r.count, r.wait, TimeUnit.MILLISECONDS);
        }
      }
      case "release" -> s.release(r.count);
      case "available" -> reply.number = (long) s.availablePermits();
      case "set" -> reply.ok = s.trySetPermits(r.count);
      case "add" -> s.addPermits(r.count);
      case "drain" -> reply.number = (long) s.drainPermits();
      case "turns" -> turns(r, reply,
          wait -> s.tryAcquire(1, wait, TimeUnit.MILLISECONDS) ? "" : null, held -> s.release());
      default -> throw new IllegalArgumentException("no operation " + r.op);
    }
  }

  private static void permits(Request r, RPermitExpirableSemaphore s, Reply reply)
      throws Exception {
    long lease = r.lease == 0 ? -1 : r.lease; // for ever: Redisson renews no permit
    switch (r.op) {
      case "acquire" -> {
        if (r.wait < 0) {
          reply.text = s.acquire(lease, TimeUnit.MILLISECONDS);
        } else {
          reply.text = s.tryAcquire(r.wait, lease, TimeUnit.MILLISECONDS);
          // It answers when the next one ends where it has none.
          reply.text = reply.text != null && reply.text.startsWith(":") ? null : reply.text;
        }
        reply.ok = reply.text != null;
      }
      case "acquireSeveral" -> {
        List<String> ids = s.tryAcquire(r.count, r.wait, lease, TimeUnit.MILLISECONDS);
        reply.ok = ids.size() == r.count && !ids.get(0).startsWith(":");
        reply.text = reply.ok ? String.join(",", ids) : null;
      }
      case "releaseSeveral" -> reply.number = (long) s.tryRelease(List.of(r.permit.split(",")));
      case "release" -> s.release(r.permit);
      case "tryRelease" -> reply.ok = s.tryRelease(r.permit);
      case "lease" -> reply.ok = s.updateLeaseTime(r.permit, r.lease, TimeUnit.MILLISECONDS);
      case "available" -> reply.number = (long) s.availablePermits();
      case "acquired" -> reply.number = (long) s.acquiredPermits();
      case "permits" -> reply.number = (long) s.getPermits();
      case "set" -> reply.ok = s.trySetPermits(r.count);
      case "resize" -> s.setPermits(r.count);
      case "turns" -> turns(r, reply, wait -> {
        String id = s.tryAcquire(wait, PATIENCE, TimeUnit.MILLISECONDS);
        return id != null && id.startsWith(":") ? null : id;
      }, s::release);
      case "add" -> s.addPermits(r.count);
      default -> throw new IllegalArgumentException("no operation " + r.op);
    }
  }

  private static void latch(Request r, RCountDownLatch l, Reply reply) throws Exception {
    switch (r.op) {
      case "await" -> {
        if (r.wait < 0) {
          l.await();
          reply.ok = true;
        } else {
          reply.ok = l.await(r.wait, TimeUnit.MILLISECONDS);
        }
      }
      case "countDown" -> l.countDown();
      case "count" -> reply.number = l.getCount();
      case "set" -> reply.ok = l.trySetCount(r.count);
      case "delete" -> reply.ok = l.delete();
      default -> throw new IllegalArgumentException("no operation " + r.op);
    }
  }

  private static void lock(Request r, RLock lock, Reply reply) throws Exception {
    long lease = r.lease == 0 ? -1 : r.lease;
    switch (r.op) {
      // Not lockAndGetToken or tryLockAndGetToken where a release is waited for: in all versions these look for a message
      // that has come, find none, and only then listen for the next. A message between is lost, whichever client
      // released the lock, and the thread waits until the lease that it knows of is over.
      case "lock" -> {
        if (r.lease == 0) {
          lock.lock();
        } else {
          lock.lock(r.lease, TimeUnit.MILLISECONDS);
        }
        if (lock instanceof RFencedLock fenced) {
          reply.number = fenced.getToken();
        }
        reply.ok = true;
      }
      case "lockAndGetToken" -> {
        reply.number = ((RFencedLock) lock).lockAndGetToken();
        reply.ok = true;
      }
      case "tryLock" -> {
        if (lock instanceof RFencedLock fenced) {
          reply.number = fenced.tryLockAndGetToken(r.wait, lease, TimeUnit.MILLISECONDS);
          reply.ok = reply.number != null;
        } else if (r.wait == 0 && r.lease == 0) {
          reply.ok = lock.tryLock(); // with times, a fair lock's stands in the queue for a moment
        } else {
          reply.ok = lock.tryLock(r.wait, lease, TimeUnit.MILLISECONDS);
        }
      }
      case "unlock" -> {
        lock.unlock();
        reply.ok = true;
      }
      case "turns" -> turns(r, reply,
          wait -> lock.tryLock(wait, -1, TimeUnit.MILLISECONDS) ? "" : null, held -> lock.unlock());
      case "forceUnlock" -> reply.ok = lock.forceUnlock();
      case "token" -> reply.number = ((RFencedLock) lock).getToken();
      case "heldBy" -> reply.ok = of(r.owner, lock).isHeldByThread(r.of);
      case "state" -> {
        State s = new State();
        s.locked = lock.isLocked();
        s.held = lock.isHeldByCurrentThread();
        s.holds = lock.getHoldCount();
        s.remaining = lock.remainTimeToLive();
        reply.state = s;
      }
      default -> throw new IllegalArgumentException("no operation " + r.op);
    }
  }

  /** The lock as it would be to a client with another id. Its owners are that id, a colon and a thread's number. */
  private static RLock of(String client, RLock lock) throws ReflectiveOperationException {
    Field id = RedissonBaseLock.class.getDeclaredField("id");
    id.setAccessible(true);
    id.set(lock, client);
    return lock;
  }

  /** Waits for so many ms; null: in vain. */
  private interface Taker {
    String take(long wait) throws Exception;
  }

  /** Takes again and again for r.wait, and holds for r.lease. */
  private static void turns(Request r, Reply reply, Taker taker, Consumer<String> release)
      throws Exception {
    long turns = 0;
    long longest = 0;
    for (long now = System.nanoTime(), end = now + r.wait * 1_000_000; now < end; now = System.nanoTime()) {
      String held = taker.take((end - now) / 1_000_000);
      longest = Math.max(longest, System.nanoTime() - now);
      if (held == null) {
        break;
      }
      turns++;
      if (r.lease > 0) {
        Thread.sleep(r.lease);
      }
      release.accept(held);
    }
    reply.number = turns;
    reply.text = String.valueOf(longest / 1_000_000);
  }

  private static RLock lockOf(Request r) {
    RedissonClient c = clients.get(r.client);
    return switch (r.kind) {
      case "plain" -> c.getLock(r.name);
      case "fenced" -> c.getFencedLock(r.name);
      case "fair" -> c.getFairLock(r.name);
      case "spin" -> c.getSpinLock(r.name);
      case "read" -> c.getReadWriteLock(r.name).readLock();
      case "write" -> c.getReadWriteLock(r.name).writeLock();
      case "multi" -> new RedissonMultiLock(parts(r));
      case "red" -> new RedissonRedLock(parts(r));
      default -> throw new IllegalArgumentException("no kind " + r.kind);
    };
  }

  private static RLock[] parts(Request r) {
    return r.parts.stream()
        .map(p -> clients.get(p.client).getLock(p.name))
        .toArray(RLock[]::new);
  }

  private static final int PATIENCE = 10_000;

  /**
   * Everything is Redisson's default but the sizes of pools and the patience with a store that is
   * slow to answer, the machine being small.
   */
  private static Config config(Request r) {
    Config config = new Config().setThreads(4).setNettyThreads(2);
    if (r.watchdog > 0) {
      config.setLockWatchdogTimeout(r.watchdog);
    }
    if (r.cluster) {
      ClusterServersConfig servers = config.useClusterServers();
      set(servers, "setShardedSubscriptionMode", r.sharded ? "AUTO" : "OFF");
      set(servers, "setSubscriptionTimeout", 2 * PATIENCE);
      servers
          .setReadMode(ReadMode.MASTER)
          .setTimeout(PATIENCE)
          .setMasterConnectionMinimumIdleSize(1)
          .setSubscriptionConnectionMinimumIdleSize(1)
          .addNodeAddress(r.nodes.toArray(String[]::new));
    } else {
      SingleServerConfig server = config.useSingleServer();
      set(server, "setSubscriptionTimeout", 2 * PATIENCE);
      server
          .setConnectionMinimumIdleSize(1)
          .setTimeout(PATIENCE)
          .setSubscriptionConnectionMinimumIdleSize(1)
          .setAddress(r.nodes.get(0));
    }
    return config;
  }

  /** Calls a setter that a Redisson of 2023 does not have; there it does nothing. */
  private static void set(Object config, String setter, Object value) {
    for (Method m : config.getClass().getMethods()) {
      if (m.getName().equals(setter) && m.getParameterCount() == 1) {
        try {
          Class<?> type = m.getParameterTypes()[0];
          if (type.isEnum()) {
            value = type.getMethod("valueOf", String.class).invoke(null, value);
          }
          m.invoke(config, value);
          return;
        } catch (ReflectiveOperationException e) {
          throw new IllegalStateException(setter, e);
        }
      }
    }
  }
}
