import com.google.gson.Gson;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel.MapMode;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * What worker_test.go is for the other contenders, for Redisson: it reads tasks from standard
 * input, does each on threads of this process with a client of its own, and writes a report.
 */
public final class Worker {
  static final class Task {
    String Addr;
    String Witness;
    int Process;
    long Run;
    int Goroutines;
    boolean Shared;
    boolean Try;
    long Hold; // ns
    boolean Fair;
  }

  static final class Report {
    String Error = "";
    long All;
    long[] Each;
    double[] Waits; // µs
    double Held; // µs
    long Between;
    double CPU; // µs
    double Bytes;
    int Goroutines;
    int Failures;
  }

  /** The words of run_test.go, each in a cache line. */
  private static final int INSIDE = 0, VIOLATIONS = 64, SERVED = 128, OPS = 192, PHASE = 256, SIZE = 320;

  private static final long MEASURING = 1, OVER = 2;

  private static final VarHandle WORD =
      MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());

  private static final Gson gson = new Gson();
  private static final PrintStream out =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

  public static void main(String[] args) throws Exception {
    System.setOut(System.err); // standard output is for the protocol
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      new Worker(gson.fromJson(line, Task.class), in).work();
    }
    System.exit(0);
  }

  private final Task task;
  private final BufferedReader in;
  private final ByteBuffer witness;
  private final AtomicLongArray all; // ops of each thread, a cache line each
  private final double[][] waits; // of each thread, in the window
  private final int[] counted;
  private final long[] held; // ns
  private final AtomicInteger failures = new AtomicInteger();
  private volatile boolean ended;
  private volatile String error = "";

  private Worker(Task task, BufferedReader in) throws Exception {
    this.task = task;
    this.in = in;
    try (RandomAccessFile file = new RandomAccessFile(task.Witness, "rw")) {
      witness = file.getChannel().map(MapMode.READ_WRITE, 0, SIZE);
    }
    all = new AtomicLongArray(8 * task.Goroutines);
    waits = new double[task.Goroutines][4096];
    counted = new int[task.Goroutines];
    held = new long[task.Goroutines];
  }

  private RedissonClient connect() {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://" + task.Addr);
    return Redisson.create(config);
  }

  private RLock lock(RedissonClient client, String name) {
    return task.Fair ? client.getFairLock(name) : client.getLock(name);
  }

  private String name(int thread) {
    return "bench:" + task.Run + (task.Shared || task.Try ? "" : ":" + task.Process + ":" + thread);
  }

  private void work() throws Exception {
    RedissonClient client = connect();
    RedissonClient holder = null;
    if (task.Try) {
      holder = connect();
      lock(holder, name(0)).lock();
    }
    inThreads("warm", thread -> {
      RLock lock = lock(client, "warm:" + task.Run + ":" + task.Process + ":" + thread);
      for (int i = 0; i < 10; i++) {
        if (lock.tryLock()) {
          lock.unlock();
        }
      }
    }, () -> {});
    System.gc();
    say("ready");
    in.readLine(); // begin
    Report report = new Report();
    inThreads("bench", thread -> run(client, thread), () -> measure(report));
    report.Error = error;
    report.Each = new long[task.Goroutines];
    int n = Arrays.stream(counted).sum();
    report.Waits = new double[n];
    for (int thread = 0, at = 0; thread < task.Goroutines; at += counted[thread++]) {
      report.Each[thread] = counted[thread];
      System.arraycopy(waits[thread], 0, report.Waits, at, counted[thread]);
    }
    report.All = sum();
    report.Held = Arrays.stream(held).sum() / 1e3 / Math.max(n, 1);
    report.Failures = failures.get();
    say(gson.toJson(report));
    client.shutdown(0, 5, TimeUnit.SECONDS);
    if (holder != null) {
      holder.shutdown(0, 5, TimeUnit.SECONDS);
    }
  }

  private interface Body {
    void run(int thread) throws Exception;
  }

  private interface Step {
    void run() throws Exception;
  }

  /** Starts the threads, does the step meanwhile, and awaits them; whoever waits then is interrupted. */
  private void inThreads(String prefix, Body body, Step meanwhile) throws Exception {
    Thread[] threads = new Thread[task.Goroutines];
    for (int i = 0; i < threads.length; i++) {
      int thread = i;
      threads[i] = new Thread(() -> {
        try {
          body.run(thread);
        } catch (Throwable e) {
          if (!ended) {
            error = e.toString();
          }
        }
      }, prefix + "-" + i);
      threads[i].start();
    }
    meanwhile.run();
    for (Thread thread : threads) {
      while (thread.isAlive()) {
        if (ended) {
          thread.interrupt();
        }
        thread.join(100);
      }
    }
  }

  private void measure(Report report) throws Exception {
    in.readLine(); // measure
    OperatingSystemMXBean os =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long before = sum(), cpu = os.getProcessCpuTime(), bytes = allocated();
    in.readLine(); // end
    report.Between = sum() - before;
    report.CPU = (os.getProcessCpuTime() - cpu) / 1e3;
    report.Bytes = allocated() - bytes;
    report.Goroutines = ManagementFactory.getThreadMXBean().getThreadCount();
    ended = true;
  }

  /** Bytes that the threads which live now have allocated: none ends between two calls. */
  private static long allocated() {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    long[] bytes =
        ((com.sun.management.ThreadMXBean) threads).getThreadAllocatedBytes(threads.getAllThreadIds());
    return Arrays.stream(bytes).filter(n -> n > 0).sum();
  }

  private long sum() {
    long n = 0;
    for (int i = 0; i < task.Goroutines; i++) {
      n += all.get(8 * i);
    }
    return n;
  }

  private void run(RedissonClient client, int thread) throws Exception {
    RLock lock = lock(client, name(thread));
    long who = (long) task.Process << 32 | (thread + 1);
    while (phase() != OVER) {
      long asked = System.nanoTime(), got = asked, freed = asked, over;
      try {
        if (task.Try) {
          if (lock.tryLock()) {
            throw new IllegalStateException("tryLock got a lock that is held");
          }
        } else {
          lock.lockInterruptibly();
          got = System.nanoTime();
          if (task.Shared) {
            if (!WORD.compareAndSet(witness, INSIDE, 0L, who)) {
              WORD.getAndAdd(witness, VIOLATIONS, 1L);
            }
            long until = got + task.Hold;
            for (long left = task.Hold; left > 0; left = until - System.nanoTime()) {
              LockSupport.parkNanos(left);
            }
            if (!WORD.compareAndSet(witness, INSIDE, who, 0L)) {
              WORD.getAndAdd(witness, VIOLATIONS, 1L);
            }
          }
          freed = System.nanoTime();
          lock.unlock();
        }
        over = System.nanoTime();
      } catch (IllegalStateException e) {
        throw e;
      } catch (Exception e) {
        if (ended || phase() == OVER) {
          return;
        }
        failures.incrementAndGet();
        continue;
      }
      if (all.incrementAndGet(8 * thread) == 1) {
        WORD.getAndAdd(witness, SERVED, 1L);
      }
      if (phase() == MEASURING) {
        WORD.getAndAdd(witness, OPS, 1L);
        if (counted[thread] == waits[thread].length) {
          waits[thread] = Arrays.copyOf(waits[thread], 2 * counted[thread]);
        }
        waits[thread][counted[thread]++] = ((task.Shared ? got : over) - asked) / 1e3;
        held[thread] += freed - got;
      }
    }
  }

  private long phase() {
    return (long) WORD.getVolatile(witness, PHASE);
  }

  private static void say(String line) {
    out.print(line + "\n");
    out.flush();
  }
}
