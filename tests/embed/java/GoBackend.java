package com.wireguard.android.backend;

/** What wireguard-android's class of this name asks of its library. */
public final class GoBackend {
    private GoBackend() {}

    public static native int wgTurnOn(String ifName, int tunFd, String settings);

    public static native void wgTurnOff(int handle);

    public static native String wgGetConfig(int handle);

    public static native int wgGetSocketV4(int handle);

    public static native int wgGetSocketV6(int handle);

    public static native String wgVersion();
}
