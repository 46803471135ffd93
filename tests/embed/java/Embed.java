import com.wireguard.android.backend.GoBackend;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import linerate.Native;

/**
 * A Java program with tunnels inside; tests/interop/embed-java.sh runs it.
 *
 * <p>embed: FIRST SECOND ROUNDS: two tunnels over loopback, between the namespaces ha and hb, again and again; FIRST and
 * SECOND are their settings. hold SETTINGS: one tunnel over the descriptor WG_TUN_FD until standard input ends.
 */
public final class Embed {
    /** Rounds before the first look at what a process has: by then it has its code and its pools. */
    private static final int WARM_UP = 200;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("hold")) {
            hold(Files.readString(Path.of(arguments[1])));
            return;
        }
        int first = Descriptors.tun("/run/netns/ha", "wga"), second = Descriptors.tun("/run/netns/hb", "wgb");
        System.out.println("made " + GoBackend.wgVersion() + " " + Native.version());
        System.in.read(); // their addresses are set meanwhile
        int a = Descriptors.udp("/run/netns/ha", "10.9.0.1", 9), b = Descriptors.udp("/run/netns/hb", "10.9.0.2", 9);
        String one = Files.readString(Path.of(arguments[1])), two = Files.readString(Path.of(arguments[2]));
        refusals(first, two);
        int rounds = Integer.parseInt(arguments[3]);
        long before = 0;
        int descriptors = 0;
        long began = System.nanoTime();
        for (int round = 0; round < rounds; round++) {
            round(first, second, a, b, one, two);
            // The kernel takes a moment longer than the join.
            for (int wait = 0; wait < 5000 && threadsOfTunnels() > 0; wait++) Thread.sleep(1);
            expect("threads of tunnels", 0, threadsOfTunnels());
            if (round == WARM_UP) {
                System.gc();
                before = resident();
                descriptors = descriptors();
            }
        }
        System.gc();
        expect("descriptors", descriptors, descriptors());
        System.out.println("ok " + (resident() - before) + " " + resident() + " " + (System.nanoTime() - began) / 1000000);
    }

    private static void round(int first, int second, int a, int b, String one, String two) throws Exception {
        Watcher host = new Watcher();
        int go = GoBackend.wgTurnOn("wga", Descriptors.duplicate(first), one);
        int own = Native.start("wgb", Descriptors.duplicate(second), two, 1280, host);
        expect("handles", true, go > 0 && own > 0 && go != own);
        expect("sockets", true, GoBackend.wgGetSocketV4(go) > 2 && GoBackend.wgGetSocketV6(go) > 2);
        expect("protected sockets", 2, host.sockets);
        expect("a datagram", true, Descriptors.exchange(a, b, "10.9.0.2", 9));
        expect("an answer", true, Descriptors.exchange(b, a, "10.9.0.1", 9));
        expect("the event of a handshake", true, host.handshakes.tryAcquire(10, TimeUnit.SECONDS));
        expect("statistics", true, bytes(GoBackend.wgGetConfig(go)) > 0 && bytes(Native.get(own, Native.STATISTICS)) > 0);
        expect("no secrets", false, Native.get(own, Native.STATISTICS).contains("private_key"));
        Native.network(own, true);
        GoBackend.wgTurnOff(go);
        Native.stop(own);
        host.stopped = true;
        Native.stop(own);
        GoBackend.wgTurnOff(go);
        expect("a stopped tunnel's socket", -1, GoBackend.wgGetSocketV4(go));
        expect("a stopped tunnel's state", null, GoBackend.wgGetConfig(go));
        expect("callbacks after the end", 0, host.late);
    }

    private static void refusals(int tun, String settings) {
        expect("no settings", -1, GoBackend.wgTurnOn("t", Descriptors.duplicate(tun), null));
        expect("bad settings", -1, GoBackend.wgTurnOn(null, Descriptors.duplicate(tun), "private_key=\u00e4\u0000\n"));
        expect("no descriptor", -1, GoBackend.wgTurnOn("t", -1, settings));
        refused("no host", () -> Native.start("t", Descriptors.duplicate(tun), settings, 0, null));
        refused("no settings", () -> Native.start(null, Descriptors.duplicate(tun), null, -1, new Watcher()));
        refused("a closed descriptor", () -> Native.start("t", 999, settings, 0, new Watcher()));
        refused("a protect that throws", () -> Native.start("t", Descriptors.duplicate(tun), settings, 0, new Watcher() {
            @Override public boolean protect(int socket) {
                throw new IllegalStateException("meant to be thrown");
            }
        }));
        refused("no tunnel", () -> Native.set(12345, settings));
        refused("no such text", () -> Native.get(12345, 77));
    }

    private interface Call {
        void run() throws IOException;
    }

    private static void refused(String what, Call call) {
        try {
            call.run();
        } catch (IOException refusal) {
            expect(what + ": a reason", true, refusal.getMessage().length() > 10);
            return;
        }
        throw new AssertionError(what + ": expected a refusal");
    }

    private static class Watcher implements Native.Host {
        final Semaphore handshakes = new Semaphore(0);
        volatile boolean stopped;
        volatile int sockets;
        volatile int late;

        @Override public boolean protect(int socket) {
            sockets++;
            return socket > 2;
        }

        @Override public void log(int level, String text) {
            if (stopped) late++;
            if (level < 3) System.err.println(level + " " + text);
        }

        @Override public void event(int what, String detail) {
            if (stopped) late++;
            if (what == 1 && detail.length() == 64) handshakes.release();
        }
    }

    private static void hold(String settings) throws IOException {
        int tunnel = GoBackend.wgTurnOn("wg", Integer.parseInt(System.getenv("WG_TUN_FD")), settings);
        expect("a handle", true, tunnel > 0);
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        GoBackend.wgTurnOff(tunnel);
    }

    /** As GoBackend.getStatistics reads them. */
    private static long bytes(String state) {
        long sum = 0;
        for (String line : state.split("\\n")) {
            if (line.startsWith("rx_bytes=")) sum += Long.parseLong(line.substring(9));
        }
        return sum;
    }

    private static int threadsOfTunnels() throws IOException {
        int count = 0;
        for (File thread : new File("/proc/self/task").listFiles()) {
            try {
                String name = Files.readString(thread.toPath().resolve("comm")).trim();
                if (name.equals("worker") || name.equals("control")) count++;
            } catch (IOException gone) {
                // It has ended meanwhile.
            }
        }
        return count;
    }

    private static int descriptors() {
        return new File("/proc/self/fd").list().length;
    }

    /** Kilobytes. */
    private static long resident() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) return Long.parseLong(line.replaceAll("[^0-9]", ""));
        }
        throw new IOException("no VmRSS");
    }

    private static void expect(String what, Object expected, Object seen) {
        if (expected == null ? seen != null : !expected.equals(seen)) {
            throw new AssertionError(what + ": expected " + expected + ", saw " + seen);
        }
    }

    static {
        System.load(System.getProperty("descriptors"));
        System.load(System.getProperty("wg-go"));
    }
}
