// SPDX-License-Identifier: MIT OR Apache-2.0
package linerate

import android.app.Notification
import android.app.NotificationChannel
import android.app.NotificationManager
import android.content.Intent
import android.net.ConnectivityManager
import android.net.Network
import android.net.VpnService
import android.os.Build
import android.os.ParcelFileDescriptor
import android.util.Log
import java.io.IOException
import java.util.concurrent.Executors
import java.util.concurrent.RejectedExecutionException

/** One tunnel. Everything but callbacks happens on one thread, so that nothing waits on the main thread. */
class TunnelService : VpnService(), Native.Host {
    /** What a tunnel is made of; addresses and routes as ADDRESS/PREFIX. */
    class Config(
        val name: String,
        val addresses: List<String>,
        val routes: List<String>,
        val dns: List<String>,
        val mtu: Int,
        /** The lines of a UAPI set; names of endpoints are resolved already. */
        val settings: String,
    )

    companion object {
        const val START = "linerate.START"
        const val STOP = "linerate.STOP"
        private const val TAG = "linerate"
        private const val CHANNEL = "tunnel"

        /** What the next START starts, or changes the running tunnel into. Set by the app's own code. */
        @Volatile var config: Config? = null

        init {
            System.loadLibrary("linerate")
        }
    }

    private val worker = Executors.newSingleThreadExecutor()
    private var tunnel = 0
    private var watched: ConnectivityManager.NetworkCallback? = null

    override fun onStartCommand(intent: Intent?, flags: Int, startId: Int): Int {
        startForeground(1, notification())
        if (intent?.action == STOP) {
            later { stop() }
        } else {
            // Also without an intent: the system starts an always-on VPN so.
            later { start() }
        }
        return START_STICKY
    }

    override fun onRevoke() = later { stop() }

    override fun onDestroy() {
        later { stop() }
        worker.shutdown()
        super.onDestroy()
    }

    private fun later(work: () -> Unit) {
        try {
            worker.execute(work)
        } catch (_: RejectedExecutionException) {
            // The service is gone, and the tunnel with it.
        }
    }

    private fun start() {
        val wanted = config ?: return stop()
        try {
            val tun = interfaceOf(wanted).establish() ?: throw IOException("no consent: VpnService.prepare")
            if (tunnel == 0) {
                // detachFd: the descriptor is the library's from here on, also when it refuses.
                tunnel = Native.start(wanted.name, tun.detachFd(), wanted.settings, wanted.mtu, this)
                watchNetwork()
            } else {
                change(tun, wanted)
            }
        } catch (refusal: IOException) {
            Log.e(TAG, "${wanted.name}: ${refusal.message}")
            stop()
        }
    }

    /** Sessions with peers that stay are kept. */
    private fun change(tun: ParcelFileDescriptor, wanted: Config) {
        Native.tun(tunnel, tun.detachFd())
        Native.set(tunnel, wanted.settings)
    }

    private fun interfaceOf(wanted: Config): Builder {
        val builder = Builder().setSession(wanted.name).setMtu(wanted.mtu).setBlocking(false)
        for (address in wanted.addresses) builder.addAddress(address.substringBefore('/'), length(address))
        for (route in wanted.routes) builder.addRoute(route.substringBefore('/'), length(route))
        for (server in wanted.dns) builder.addDnsServer(server)
        if (Build.VERSION.SDK_INT >= 29) builder.setMetered(false)
        return builder
    }

    private fun length(prefix: String) = prefix.substringAfter('/').toInt()

    private fun stop() {
        watched?.let { getSystemService(ConnectivityManager::class.java).unregisterNetworkCallback(it) }
        watched = null
        Native.stop(tunnel) // one that has ended stays so
        tunnel = 0
        stopForeground(STOP_FOREGROUND_REMOVE)
        stopSelf()
    }

    /** Traffic by peer, as lines of `key=value`. */
    fun statistics(): String =
        worker.submit<String> { if (tunnel == 0) "" else Native.get(tunnel, Native.STATISTICS) }.get()

    private fun watchNetwork() {
        val callback = object : ConnectivityManager.NetworkCallback() {
            override fun onAvailable(network: Network) = tell(true)

            override fun onLost(network: Network) = tell(false)
        }
        getSystemService(ConnectivityManager::class.java).registerDefaultNetworkCallback(callback)
        watched = callback
        setUnderlyingNetworks(null) // whichever is the default
    }

    private fun tell(there: Boolean) = later {
        try {
            if (tunnel != 0) Native.network(tunnel, there)
        } catch (refusal: IOException) {
            Log.w(TAG, "${refusal.message}")
        }
    }

    // Threads of the library call what follows.

    override fun protect(socket: Int): Boolean = super<VpnService>.protect(socket)

    override fun log(level: Int, text: String) {
        Log.println(if (level == 1) Log.ERROR else if (level == 2) Log.WARN else Log.INFO, TAG, text)
    }

    override fun event(what: Int, detail: String) {
        when (what) {
            1 -> Log.i(TAG, "handshake with $detail")
            2 -> Log.w(TAG, "$detail does not answer")
            3 -> later { stop() }
        }
    }

    private fun notification(): Notification {
        val manager = getSystemService(NotificationManager::class.java)
        manager.createNotificationChannel(NotificationChannel(CHANNEL, "VPN", NotificationManager.IMPORTANCE_LOW))
        val builder = Notification.Builder(this, CHANNEL).setContentTitle(config?.name ?: "VPN")
        return builder.setSmallIcon(android.R.drawable.ic_lock_lock).setOngoing(true).build()
    }
}
