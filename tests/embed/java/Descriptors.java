/** What Java cannot do by itself: tests/embed/descriptors.c. */
final class Descriptors {
    private Descriptors() {}

    /** A TUN device as an app gets it, in the network namespace of this file. */
    static native int tun(String namespace, String name);

    /** Another descriptor of the same file. */
    static native int duplicate(int fd);

    /** A UDP socket in the namespace, at this address. */
    static native int udp(String namespace, String address, int port);

    /** Sends a datagram from one socket to the other, which is at the address; whether it came within ten seconds. */
    static native boolean exchange(int from, int to, String address, int port);
}
