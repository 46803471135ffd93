//! Measures every implementation of this crate and every library, sealing and opening, by packet size and batch size.
//!
//! `cargo bench -p linerate-aead` prints the table; `-- --quick` measures fewer sizes in fewer rounds, and
//! `-- --size 1420 --batch 45 --only avx512,ring` restricts sizes and implementations.
//!
//! As machines are noisy and clock rates change, the contenders of a row alternate in many short rounds, and the
//! figures are medians; the ratio is to the fastest library of the same row. A round works on as many copies of
//! the batch as fit into [`ROUND_BYTES`], so that the cost of reading the clock is negligible; opening opens the
//! packets that were just sealed.

use std::env;
use std::hint::black_box;
use std::time::{Duration, Instant};

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use linerate_aead::choose::Choice;
use linerate_aead::{Key, Slot, TAG_LEN};
use ring::aead as ring_aead;

const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 1420, 1500, 9000];
const BATCHES: [usize; 5] = [1, 4, 16, 45, 128];

/// The buffer of one round: half of a usual L2 cache, in which the slots of a relay stay, too.
const ROUND_BYTES: usize = 256 << 10;

/// WireGuard's header before every packet.
const HEADER_LEN: usize = 16;

/// Rounds of each contender in a row.
const ROUNDS: usize = 41;
const ROUNDS_QUICK: usize = 9;

const KEY: [u8; 32] = *b"for measuring only, never to use";

/// Something that seals and opens batches.
struct Contender {
    name: &'static str,
    library: bool,
    seal: Box<Seal>,
    open: Box<Open>,
}

type Seal = dyn Fn(&mut [u8], &[Slot]);

/// Returns the number of authentic packets.
type Open = dyn Fn(&mut [u8], &[Slot]) -> usize;

fn main() {
    let args: Vec<String> = env::args().collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let value = |flag: &str| args.get(args.iter().position(|arg| arg == flag)? + 1);
    let number = |flag: &str| value(flag)?.parse::<usize>().ok();
    let rounds = if quick { ROUNDS_QUICK } else { ROUNDS };
    let sizes = if quick { vec![64, 1420] } else { SIZES.to_vec() };
    let batches = if quick { vec![1, 45] } else { BATCHES.to_vec() };

    let mut contenders = contenders();
    if let Some(names) = value("--only") {
        contenders.retain(|contender| names.split(',').any(|name| name == contender.name));
    }
    println!("{:>5} {:>5} {:4} {:10} {:>8} {:>10} {:>6}", "bytes", "batch", "", "", "GB/s", "ns/packet", "ratio");
    for size in number("--size").map_or(sizes, |size| vec![size]) {
        for batch in number("--batch").map_or(batches.clone(), |batch| vec![batch]) {
            let medians = measure(&contenders, size, batch, rounds);
            for (op, medians) in ["seal", "open"].into_iter().zip(medians) {
                print_row(&contenders, size, batch, op, &medians);
            }
        }
    }
}

/// Lines of one row: nanoseconds per packet of each contender.
fn print_row(contenders: &[Contender], size: usize, batch: usize, op: &str, medians: &[f64]) {
    let libraries = contenders.iter().zip(medians).filter(|(contender, _)| contender.library);
    let best = libraries.map(|(_, &ns)| ns).fold(f64::INFINITY, f64::min);
    for (contender, ns) in contenders.iter().zip(medians) {
        let (name, rate, ratio) = (contender.name, size as f64 / ns, best / ns);
        println!("{size:>5} {batch:>5} {op} {name:10} {rate:>8.2} {ns:>10.1} {ratio:>6.2}");
    }
}

/// Medians of sealing and of opening, in nanoseconds per packet, by contender.
fn measure(contenders: &[Contender], size: usize, batch: usize, rounds: usize) -> [Vec<f64>; 2] {
    let stride = HEADER_LEN + size.next_multiple_of(16) + TAG_LEN;
    let slots = Vec::from_iter((0..batch).map(|i| Slot {
        offset: i * stride + HEADER_LEN,
        len: size,
        counter: i as u64 + 1000,
    }));
    let copies = (ROUND_BYTES / (stride * batch)).clamp(1, 256);
    let mut bufs = vec![vec![0x5a; stride * batch]; copies];
    let mut times = [vec![Vec::new(); contenders.len()], vec![Vec::new(); contenders.len()]];
    // The first round only warms up.
    for round in 0..=rounds {
        for (at, contender) in contenders.iter().enumerate() {
            let sealing = timed(|| {
                for buf in &mut bufs {
                    (contender.seal)(black_box(buf), black_box(&slots));
                }
            });
            let opening = timed(|| {
                for buf in &mut bufs {
                    assert_eq!((contender.open)(black_box(buf), black_box(&slots)), batch);
                }
            });
            if round > 0 {
                times[0][at].push(sealing);
                times[1][at].push(opening);
            }
        }
    }
    let packets = (copies * batch) as f64;
    times.map(|op| op.into_iter().map(|times| median(times).as_nanos() as f64 / packets).collect())
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn contenders() -> Vec<Contender> {
    let ours = Choice::available().map(|choice| {
        let (seal, open) = (Key::with(choice, &KEY), Key::with(choice, &KEY));
        Contender {
            // The choice `library` is aws-lc-rs.
            name: if choice.name() == "library" { "aws-lc-rs" } else { choice.name() },
            library: choice.name() == "library",
            seal: Box::new(move |buf, slots| seal.seal(buf, slots)),
            open: Box::new(move |buf, slots| open.open(buf, slots).count()),
        }
    });
    ours.chain([ring(), rust_crypto()]).collect()
}

fn ring() -> Contender {
    fn key() -> ring_aead::LessSafeKey {
        let key = ring_aead::UnboundKey::new(&ring_aead::CHACHA20_POLY1305, &KEY).expect("its length is right");
        ring_aead::LessSafeKey::new(key)
    }
    fn nonce_of(slot: &Slot) -> ring_aead::Nonce {
        ring_aead::Nonce::assume_unique_for_key(nonce(slot))
    }
    let (seal, open) = (key(), key());
    Contender {
        name: "ring",
        library: true,
        seal: Box::new(move |buf, slots| {
            for slot in slots {
                let (text, room) = buf[slot.offset..][..slot.len + TAG_LEN].split_at_mut(slot.len);
                let aad = ring_aead::Aad::empty();
                let tag = seal.seal_in_place_separate_tag(nonce_of(slot), aad, text).expect("the packet is short");
                room.copy_from_slice(tag.as_ref());
            }
        }),
        open: Box::new(move |buf, slots| {
            let sealed = |slot: &Slot| slot.offset..slot.offset + slot.len + TAG_LEN;
            let authentic = slots.iter().filter(|slot| {
                open.open_in_place(nonce_of(slot), ring_aead::Aad::empty(), &mut buf[sealed(slot)]).is_ok()
            });
            authentic.count()
        }),
    }
}

fn rust_crypto() -> Contender {
    let (seal, open) = (ChaCha20Poly1305::new(&KEY.into()), ChaCha20Poly1305::new(&KEY.into()));
    Contender {
        name: "RustCrypto",
        library: true,
        seal: Box::new(move |buf, slots| {
            for slot in slots {
                let (text, room) = buf[slot.offset..][..slot.len + TAG_LEN].split_at_mut(slot.len);
                let tag = seal.encrypt_in_place_detached(&nonce(slot).into(), &[], text).expect("the packet is short");
                room.copy_from_slice(&tag);
            }
        }),
        open: Box::new(move |buf, slots| {
            let authentic = slots.iter().filter(|slot| {
                let (text, tag) = buf[slot.offset..][..slot.len + TAG_LEN].split_at_mut(slot.len);
                open.decrypt_in_place_detached(&nonce(slot).into(), &[], text, (&*tag).into()).is_ok()
            });
            authentic.count()
        }),
    }
}

fn nonce(slot: &Slot) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&slot.counter.to_le_bytes());
    nonce
}
