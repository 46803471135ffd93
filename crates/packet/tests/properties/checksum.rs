//! The optimized sums equal a naive one.

use crate::packets::naive_fold;
use linerate_packet::checksum::{Sum, after_change, copy_and_sum, pseudo_header, sum};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn sum_equals_the_slow_reference(bytes in vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(sum(&bytes, Sum::ZERO).fold(), naive_fold(&bytes));
    }

    #[test]
    fn copy_and_sum_copies_and_sums(bytes in vec(any::<u8>(), 0..3000)) {
        let mut copy = vec![0xaa; bytes.len()];
        let total = copy_and_sum(&bytes, &mut copy, Sum::ZERO);
        prop_assert_eq!(total.fold(), naive_fold(&bytes));
        prop_assert_eq!(copy, bytes);
    }

    #[test]
    fn a_chain_cut_at_an_even_offset_equals_the_whole(
        bytes in vec(any::<u8>(), 0..3000),
        cut in any::<prop::sample::Index>(),
    ) {
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1) & !1);
        let chained = sum(tail, sum(head, Sum::ZERO));
        let joined = sum(head, Sum::ZERO).join(sum(tail, Sum::ZERO));
        prop_assert_eq!(chained.fold(), naive_fold(&bytes));
        prop_assert_eq!(joined.fold(), naive_fold(&bytes));
    }

    #[test]
    fn fields_sum_like_their_bytes(word in any::<u16>(), long in any::<u32>()) {
        let bytes = [word.to_be_bytes().as_slice(), long.to_be_bytes().as_slice()].concat();
        prop_assert_eq!(Sum::ZERO.word(word).long(long).fold(), naive_fold(&bytes));
    }

    #[test]
    fn the_pseudo_header_sums_like_its_bytes(
        addresses in prop_oneof![vec(any::<u8>(), 8), vec(any::<u8>(), 32)],
        protocol in any::<u8>(),
        length in 0..65_536usize,
    ) {
        let mut bytes = addresses.clone();
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, protocol]);
        prop_assert_eq!(pseudo_header(&addresses, protocol, length).fold(), naive_fold(&bytes));
    }

    #[test]
    fn after_change_equals_summing_again(
        words in vec(any::<u16>(), 1..40),
        at in any::<prop::sample::Index>(),
        new in any::<u16>(),
    ) {
        // A header is never all zeros, the only case in which the two forms of zero could differ.
        prop_assume!(words.iter().any(|word| *word != 0) && new != 0);
        let at = at.index(words.len());
        let whole = |words: &[u16]| words.iter().fold(Sum::ZERO, |sum, word| sum.word(*word));
        let before = whole(&words).checksum();
        let mut changed = words.clone();
        changed[at] = new;
        prop_assert_eq!(after_change(before, words[at], new), whole(&changed).checksum());
    }
}
