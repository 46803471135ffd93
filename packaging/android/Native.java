// SPDX-License-Identifier: MIT OR Apache-2.0
package linerate;

import java.io.IOException;

/** liblinerate: tunnels over descriptors of VpnService; see docs/embedding.md. An exception has changed nothing. */
public final class Native {
    /** The program around a tunnel. Threads of the library call it; a call that waits delays the tunnel. */
    public interface Host {
        /** Keeps a socket out of the tunnel; called with every socket before it is bound. */
        boolean protect(int socket);

        /** A line of the log: 1 is an error, 2 a warning, 3 information. */
        void log(int level, String text);

        /** 1: a handshake with the peer of this key; 2: that peer is silent; 3: the tunnel has ended, and why. */
        void event(int what, String detail);
    }

    /** For {@link #get}: as the UAPI's get, with keys. */
    public static final int CONFIGURATION = 0;

    /** For {@link #get}: traffic, last handshake and endpoint of each peer, without secrets. */
    public static final int STATISTICS = 1;

    /** For {@link #get}: what was counted. */
    public static final int COUNTERS = 2;

    private Native() {}

    /** Starts a tunnel. The descriptor belongs to the library, whatever comes of it; the MTU is the interface's. */
    public static native int start(String name, int tun, String settings, int mtu, Host host) throws IOException;

    /** Changes the configuration, entirely or not at all. */
    public static native void set(int tunnel, String settings) throws IOException;

    /** The text of that number. */
    public static native String get(int tunnel, int what) throws IOException;

    /** There is another network, or one again; or there is none. */
    public static native void network(int tunnel, boolean there) throws IOException;

    /** Goes over to another interface; sessions stay. */
    public static native void tun(int tunnel, int tun) throws IOException;

    /** Ends a tunnel; one that has ended stays so. */
    public static native void stop(int tunnel);

    /** The version of the library. */
    public static native String version();
}
