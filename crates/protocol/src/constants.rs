//! Every constant of the protocol, in one place, each with its source.
//!
//! "Paper" is the WireGuard white paper; "kernel" is what the Linux kernel module does where the paper
//! leaves it open.

use core::time::Duration;

/// Bytes of a handshake initiation (paper section 5.4.2).
pub const INITIATION_LEN: usize = 148;
/// Bytes of a handshake response (paper section 5.4.3).
pub const RESPONSE_LEN: usize = 92;
/// Bytes of a cookie reply (paper section 5.4.7).
pub const COOKIE_LEN: usize = 64;
/// Bytes of the smallest data message: header and tag, a keepalive (paper section 5.4.6).
pub const DATA_MIN_LEN: usize = 32;

/// A new handshake is started on sending after this many messages (paper section 6.1).
pub const REKEY_AFTER_MESSAGES: u64 = 1 << 60;
/// Nothing is sealed or opened with a counter at or above this. The paper's 2^64 - 2^13 - 1 in
/// section 6.1 leaves room for the window; the kernel subtracts its usable window and one.
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - REPLAY_USABLE - 1;
/// Age at which the initiator starts a new handshake when it sends (paper section 6.2).
pub const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
/// Age from which a session neither seals nor opens (paper section 6.2).
pub const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// An initiation is repeated after this time without a response, and at most one is sent per peer
/// in this time (paper section 6.4).
pub const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
/// An urgent handshake is repeated this long after its first initiation, too, and so is the keepalive after its response
/// (ours): each of the three may be lost. The steps grow, as a response is taken only until the next initiation.
pub const URGENT_REPEATS: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_millis(1000), Duration::from_millis(2000)];
/// A repetition that would come sooner after the one before, because that was late, is left out (ours).
pub const URGENT_SPACING: Duration = Duration::from_millis(250);
/// Jitter added to [`REKEY_TIMEOUT`] and [`NEW_HANDSHAKE_TIMEOUT`]: up to a third of a second
/// (paper section 6.1; kernel: HZ / 3).
pub const REKEY_TIMEOUT_JITTER: Duration = Duration::from_millis(333);
/// Data was received and nothing sent for this long: send an empty packet (paper section 6.5).
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Data was sent and nothing received for this long (plus jitter): start a new handshake (paper
/// section 6.5: KEEPALIVE_TIMEOUT + REKEY_TIMEOUT).
pub const NEW_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Age at which the initiator starts a new handshake on receiving, so that a one-way flow never
/// reaches [`REJECT_AFTER_TIME`] (paper section 6.2: 180 - 10 - 5).
pub const REKEY_ON_RECEIVE_TIME: Duration = Duration::from_secs(165);
/// Key material is wiped this long after the last session was made (paper section 6.3: three
/// times REJECT_AFTER_TIME).
pub const WIPE_TIME: Duration = Duration::from_secs(540);
/// An unanswered handshake is given up when this many retries have been counted and one more is
/// due, so 20 initiations are sent in all (kernel: 90 s / REKEY_TIMEOUT, test `>`).
pub const MAX_TIMER_HANDSHAKES: u8 = 18;
/// Initiations that a peer may have consumed per second (kernel: 50).
pub const INITIATIONS_PER_SECOND: u32 = 50;
/// Least time between two consumed initiations of a peer.
pub const INITIATION_SPACING: Duration = Duration::from_millis(1000 / INITIATIONS_PER_SECOND as u64);

/// Bits of the replay window (kernel: 8192).
pub const REPLAY_BITS: u64 = 8192;
/// Usable bits: one word is always being cleared (kernel, 64-bit).
pub const REPLAY_USABLE: u64 = REPLAY_BITS - 64;

/// The cookie secret changes after this time (paper section 5.4.7).
pub const COOKIE_SECRET_TIME: Duration = Duration::from_secs(120);
/// A received cookie is used while it is younger than this: the secret's life less 5 s of latency
/// (kernel).
pub const COOKIE_USABLE_TIME: Duration = Duration::from_secs(115);

/// Datagrams in the queue of incoming handshakes at most (kernel: 4096). The caller owns the queue.
pub const HANDSHAKE_BACKLOG: usize = 4096;
/// With this many waiting handshakes or more the device is under load (kernel: an eighth).
pub const UNDER_LOAD_BACKLOG: usize = HANDSHAKE_BACKLOG / 8;
/// With more useless key agreements than this in a second the device is under load, too: they take about
/// 1 % of a core. (The kernel module tolerates them until they back up.)
pub const WASTED_MAX: u32 = 256;
/// The device stays under load for this long after the last sign of it (kernel: 1 s).
pub const UNDER_LOAD_HOLD: Duration = Duration::from_secs(1);
/// Handshakes per second that one address may cause under load (kernel: 20).
pub const RATELIMIT_PER_SECOND: u32 = 20;
/// Handshakes that one address may cause at once under load (kernel: 5).
pub const RATELIMIT_BURST: u32 = 5;
/// Addresses that the rate limiter remembers (kernel: 8192 on machines with more than 1 GB).
pub const RATELIMIT_BUCKETS: usize = 8192;

/// Under load, the set of addresses seen is renewed after this time.
pub const LOAD_PERIOD: Duration = Duration::from_secs(1);
/// Cookie replies to all addresses together in one [`LOAD_PERIOD`] at most: forged sources can make the
/// device send no more.
pub const COOKIE_REPLIES_MAX: usize = 1 << 15;
/// Addresses not seen recently that are admitted without a cookie in one [`LOAD_PERIOD`] under load: about 1 %
/// of a core if all are forged. As many responses to our initiations are admitted, besides the first to each.
pub const UNSEEN_SOURCES_MAX: usize = 256;

/// Peers of a device (kernel: 2^20).
pub const PEERS_MAX: usize = 1 << 20;

/// TAI64 label of the UNIX epoch: 2^62 plus the ten leap seconds of 1970.
pub const TAI64_EPOCH: u64 = 0x4000_0000_0000_000a;
/// Handshake timestamps are aligned down to this many nanoseconds so that they do not leak the
/// exact time (kernel: the power of two at or below a 50th of a second).
pub const TIMESTAMP_STEP: u32 = 1 << 24;

/// Noise protocol name (paper section 5.4).
pub const CONSTRUCTION: &[u8; 37] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Prologue that binds handshakes to this protocol (paper section 5.4).
pub const IDENTIFIER: &[u8; 34] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";
/// Label of the key of the first MAC (paper section 5.4).
pub const LABEL_MAC1: &[u8; 8] = b"mac1----";
/// Label of the key that seals cookies (paper section 5.4).
pub const LABEL_COOKIE: &[u8; 8] = b"cookie--";

const _: () = assert!(REJECT_AFTER_MESSAGES == 0u64.wrapping_sub(8130));
const _: () = assert!(INITIATION_SPACING.as_millis() == 20);
const _: () = assert!(INITIATION_SPACING.as_millis() < URGENT_SPACING.as_millis());
const _: () = assert!(URGENT_REPEATS[2].as_millis() + URGENT_SPACING.as_millis() <= REKEY_TIMEOUT.as_millis());
