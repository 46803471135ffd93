//! Runs the code under valgrind's memcheck with every secret marked as undefined, like ctgrind: memcheck then
//! reports each branch and each address that depends on a secret. Tests only.
//!
//! Valgrind has no AVX-512, so it checks the portable code, AVX2, also with packets in pairs, and `crate::side_by_side`
//! with portable code in place of a kernel. The AVX-512 kernels themselves were checked by reading only.

use core::arch::asm;
use std::env;
use std::io::{self, Write};
use std::process::Command;

use crate::choose::{Choice, HaveAvx2, Implementation};
use crate::poly1305::Poly1305;
use crate::portable::chacha20::ChaCha20;
use crate::vector_kernel::{
    Blocks, InterleavedKernel, KeyWords, Keystream, OneTimeKey, ScalarWork, SideBySideKernel, SmallKeystream,
    VectorKernel,
};
use crate::{Key, Slot, TAG_LEN, interleaved, poly1305, side_by_side};

/// `VG_USERREQ__RUNNING_ON_VALGRIND` of valgrind.h.
const RUNNING: u64 = 0x1001;
/// `VG_USERREQ__MAKE_MEM_UNDEFINED` and `..._DEFINED` of memcheck.h.
const MAKE_UNDEFINED: u64 = (b'M' as u64) << 24 | (b'C' as u64) << 16 | 1;
const MAKE_DEFINED: u64 = MAKE_UNDEFINED + 1;

/// Set in the process that valgrind runs, to its task.
const TASK: &str = "LINERATE_AEAD_MEMCHECK";

/// A client request: a no-op for the CPU, a call for valgrind. Returns 0 without valgrind.
fn request(code: u64, address: u64, len: u64) -> u64 {
    let arguments = [code, address, len, 0, 0, 0];
    let mut answer = 0;
    // SAFETY: the sequence of valgrind.h (amd64): rotating rdi by 128 bits in all and exchanging rbx with itself change
    // nothing. Valgrind reads the six words that rax points to.
    unsafe {
        asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") arguments.as_ptr(), inout("rdx") answer, out("rdi") _,
        );
    }
    answer
}

fn undefine(secret: &mut [u8]) {
    request(MAKE_UNDEFINED, secret.as_ptr() as u64, secret.len() as u64);
}

fn define(public: &mut [u8]) {
    request(MAKE_DEFINED, public.as_ptr() as u64, public.len() as u64);
}

/// Marks a number as public for memcheck.
pub(crate) fn published(number: u128) -> u128 {
    let mut bytes = number.to_ne_bytes();
    define(&mut bytes);
    u128::from_ne_bytes(bytes)
}

/// Seals and opens with secret keys and texts, on every path: one packet, few and many, short and long, of equal and of
/// different lengths, and an altered one.
fn seal_and_open_secrets() {
    let ragged = [0, 1, 15, 16, 17, 64, 65, 100, 256, 700, 1420, 1420, 1420, 1420, 33, 33];
    for choice in Choice::available().filter(|choice| choice.name() != "library") {
        // Without the batches that kernels leave to the library.
        for lens in
            [&ragged[..], &[1420; 17], &[700; 9], &[64; 45], &[0], &[50], &[64], &[64, 17], &[64, 33, 0], &[190, 192]]
        {
            let (slots, len) = lay_out(lens);
            let (mut key, mut buf) = ([7; 32], vec![9; len]);
            undefine(&mut key);
            undefine(&mut buf);
            let key = Key::with(choice, &key);
            key.seal(&mut buf, &slots);
            // Sealed packets are public.
            define(&mut buf);
            buf[0] ^= 1;
            assert_eq!(key.open(&mut buf, &slots).count(), slots.len() - 1);
        }
        println!("memcheck has seen {choice:?}");
    }
}

/// Seals and opens secrets as `crate::side_by_side` does for a kernel.
fn seal_and_open_secrets_side_by_side() {
    for lens in [&[0, 1, 16, 700, 64, 1420, 33, 1420, 1420, 65][..], &[100; 17]] {
        let (slots, len) = lay_out(lens);
        let (mut key, mut buf) = ([7; 32], vec![9; len]);
        undefine(&mut key);
        undefine(&mut buf);
        let key = KeyWords::new(&key);
        side_by_side::seal(PortableKernel, &key, &mut buf, &slots);
        define(&mut buf);
        buf[0] ^= 1;
        assert_eq!(side_by_side::open(PortableKernel, &key, &mut buf, &slots).count(), slots.len() - 1);
    }
    println!("memcheck has seen side by side");
}

/// Seals and opens secrets with packets in pairs, which `crate::interleaved` forms for AVX-512F only.
fn seal_and_open_secrets_in_pairs() {
    let Some(kernel) = Choice::available().find_map(|choice| match choice.0 {
        Implementation::Avx2(token) => Some(InPairs(token)),
        _ => None,
    }) else {
        return;
    };
    for lens in [&[0, 0, 16, 16, 700, 700, 64, 64, 33, 100][..], &[100; 17], &[1420; 3]] {
        let (slots, len) = lay_out(lens);
        let (mut key, mut buf) = ([7; 32], vec![9; len]);
        undefine(&mut key);
        undefine(&mut buf);
        let key = KeyWords::new(&key);
        interleaved::seal(kernel, &key, &mut buf, &slots);
        define(&mut buf);
        buf[0] ^= 1;
        assert_eq!(interleaved::open(kernel, &key, &mut buf, &slots).count(), slots.len() - 1);
    }
    println!("memcheck has seen pairs");
}

/// The AVX2 kernel with [`InterleavedKernel::PAIRS`].
#[derive(Clone, Copy)]
struct InPairs(HaveAvx2);

impl VectorKernel for InPairs {
    const MAX_SINGLE_PACKET_BLOCKS: usize = HaveAvx2::MAX_SINGLE_PACKET_BLOCKS;

    fn min_packets(longest: usize) -> usize {
        HaveAvx2::min_packets(longest)
    }

    fn keystream_small(self, key: &KeyWords, batch: &[Slot], count: usize, out: &mut SmallKeystream) {
        self.0.keystream_small(key, batch, count, out);
    }

    fn clear_registers(self) {
        self.0.clear_registers();
    }

    fn apply(self, text: &mut [u8], keystream: &[u8]) {
        self.0.apply(text, keystream);
    }
}

impl InterleavedKernel<8> for InPairs {
    const PAIRS: bool = true;

    #[inline(always)]
    fn keystream(self, key: &KeyWords, blocks: &Blocks<8>, out: &mut Keystream<8>, work: impl ScalarWork) {
        InterleavedKernel::keystream(self.0, key, blocks, out, work);
    }

    #[inline(always)]
    fn fold(self, poly: &mut Poly1305, block: &[u8; 16]) {
        self.0.fold(poly, block);
    }

    #[inline(always)]
    fn fold_two(self, poly: &mut Poly1305, blocks: &[[u8; 16]; 2]) {
        self.0.fold_two(poly, blocks);
    }

    #[inline(always)]
    fn fold_each(self, polys: &mut [Poly1305; 2], blocks: [&[u8; 16]; 2]) {
        self.0.fold_each(polys, blocks);
    }

    #[inline(always)]
    fn fold_two_of_each(self, polys: &mut [Poly1305; 2], blocks: [&[[u8; 16]; 2]; 2]) {
        self.0.fold_two_of_each(polys, blocks);
    }
}

/// A kernel that needs no instructions of its own.
#[derive(Clone, Copy)]
struct PortableKernel;

impl VectorKernel for PortableKernel {
    const MAX_SINGLE_PACKET_BLOCKS: usize = 0;

    fn min_packets(_longest: usize) -> usize {
        1
    }

    fn keystream_small(self, _: &KeyWords, _: &[Slot], _: usize, _: &mut SmallKeystream) {
        unreachable!("only `side_by_side` has this kernel");
    }

    fn clear_registers(self) {}

    fn apply(self, text: &mut [u8], keystream: &[u8]) {
        for (byte, key) in text.iter_mut().zip(keystream) {
            *byte ^= key;
        }
    }
}

impl SideBySideKernel for PortableKernel {
    fn keystream(
        self,
        key: &KeyWords,
        blocks: &Blocks<{ side_by_side::LANES }>,
        count: usize,
        out: &mut Keystream<{ side_by_side::LANES }>,
    ) {
        let mut bytes = [0; 32];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(key.0) {
            *bytes = word.to_le_bytes();
        }
        for (i, out) in out.0.iter_mut().enumerate().take(count) {
            let nonce = u64::from(blocks.nonce_high[i]) << 32 | u64::from(blocks.nonce_low[i]);
            ChaCha20::new(&bytes, &crate::nonce(nonce)).block(blocks.counter[i], out);
        }
    }

    fn tags(
        self,
        keys: &[OneTimeKey; side_by_side::PACKETS],
        texts: [&[u8]; side_by_side::PACKETS],
        _count: usize,
    ) -> [[u8; TAG_LEN]; side_by_side::PACKETS] {
        core::array::from_fn(|i| poly1305::tag(&keys[i], texts[i]))
    }
}

/// Slots of these lengths, one after the other, and the length of all.
fn lay_out(lens: &[usize]) -> (Vec<Slot>, usize) {
    let mut offset = 0;
    let slots = Vec::from_iter(lens.iter().zip(1..).map(|(&len, counter)| {
        offset += len + TAG_LEN;
        Slot { offset: offset - len - TAG_LEN, len, counter }
    }));
    (slots, offset)
}

/// Memcheck must report this.
fn branch_on_a_secret() {
    let mut secret = [1];
    undefine(&mut secret);
    if core::hint::black_box(secret[0]) == 2 {
        println!("unlikely");
    }
}

/// Runs this test again under valgrind, with a task. `None` without valgrind.
fn under_valgrind(test: &str, task: &str) -> Option<(bool, String)> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--error-exitcode=99"]).arg(env::current_exe().expect("this program has a path"));
    valgrind.args(["--exact", &format!("{}::{test}", module_path!().split_once("::").expect("inside a crate").1)]);
    match valgrind.args(["--nocapture", "--test-threads=1"]).env(TASK, task).output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
        }
        Err(error) => {
            // Not by println, whose output the harness captures for a test that passes.
            writeln!(io::stderr(), "skipped: {test}: valgrind cannot be run ({error})").expect("stderr takes a line");
            None
        }
    }
}

/// The task of this process if it runs under valgrind.
fn task() -> Option<String> {
    (request(RUNNING, 0, 0) != 0).then(|| env::var(TASK).ok()).flatten()
}

#[test]
fn no_branch_and_no_address_depends_on_a_secret() {
    if task().is_some() {
        seal_and_open_secrets();
        seal_and_open_secrets_in_pairs();
        return seal_and_open_secrets_side_by_side();
    }
    let Some((passed, said)) = under_valgrind("no_branch_and_no_address_depends_on_a_secret", "seal and open") else {
        return;
    };
    assert!(passed && said.contains("memcheck has seen portable"), "{said}");
    assert!(said.contains("memcheck has seen side by side"), "{said}");
    assert_eq!(said.contains("memcheck has seen pairs"), said.contains("memcheck has seen avx2"), "{said}");
    for choice in Choice::available().filter(|choice| choice.name() != "library") {
        if !said.contains(&format!("memcheck has seen {choice:?}")) {
            println!("skipped: valgrind cannot run {choice:?}");
        }
    }
}

#[test]
fn memcheck_reports_a_branch_on_a_secret() {
    if task().is_some() {
        return branch_on_a_secret();
    }
    if let Some((passed, said)) = under_valgrind("memcheck_reports_a_branch_on_a_secret", "branch") {
        assert!(!passed && said.contains("uninitialised"), "{said}");
    }
}
