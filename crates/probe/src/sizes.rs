//! Which sizes of packets pass: a path that swallows large ones lets connections begin and then hang.

use std::io;
use std::time::Duration;

use crate::Echo;

/// What every link carries: RFC 8200 for IPv6, and what tunnels do not go below for IPv4.
const SMALLEST: [u32; 2] = [576, 1280];

/// The same request is sent this often before it counts as lost.
const ATTEMPTS: u16 = 3;

/// The search ends this close to the limit.
const CLOSE_ENOUGH: u32 = 8;

/// The limit of a path, in bytes of a packet with its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The largest that was answered.
    pub passes: u32,
    /// The smallest that was not, in several attempts.
    pub is_lost: u32,
}

/// Searches for a size below `mtu` from which on packets get lost; none if all sizes pass, or if smaller ones get lost as
/// well. Sizes that the kernel refuses are not lost: a router has told it of them. Each request is waited for up to
/// `patience`.
///
/// # Errors
/// Those of [`Echo::never_fragment`].
pub fn sizes(echo: &Echo, is_v6: bool, mtu: u32, patience: Duration) -> io::Result<Option<Sizes>> {
    echo.never_fragment()?;
    let mut number = 0;
    let mut is_answered = |bytes: u32| {
        (0..ATTEMPTS).any(|_| {
            number += 1;
            echo.round_trip_of(number, bytes, patience).map_or(true, |answer| answer.is_some())
        })
    };
    Ok(search(SMALLEST[usize::from(is_v6)], mtu, CLOSE_ENOUGH, &mut is_answered))
}

/// The size of the largest packet up to `mtu` that passes; none if even the smallest do not. What the kernel refuses does
/// not pass.
///
/// # Errors
/// Those of [`Echo::never_fragment`].
pub fn largest(echo: &Echo, is_v6: bool, mtu: u32, patience: Duration) -> io::Result<Option<u32>> {
    echo.never_fragment()?;
    let mut number = 0;
    let mut is_answered = |bytes: u32| {
        (0..ATTEMPTS).any(|_| {
            number += 1;
            echo.round_trip_of(number, bytes, patience).is_ok_and(|answer| answer.is_some())
        })
    };
    Ok(search_largest(SMALLEST[usize::from(is_v6)], mtu, &mut is_answered))
}

fn search_largest(smallest: u32, mtu: u32, is_answered: &mut impl FnMut(u32) -> bool) -> Option<u32> {
    if is_answered(mtu) {
        return Some(mtu);
    }
    let limit = search(smallest, mtu, 1, is_answered).map(|sizes| sizes.passes);
    // Without one, answers may have been late for a moment: of this process, or of the other host.
    limit.or_else(|| is_answered(mtu).then_some(mtu))
}

fn search(smallest: u32, mtu: u32, close: u32, is_answered: &mut impl FnMut(u32) -> bool) -> Option<Sizes> {
    let (mut passes, mut is_lost) = (smallest, mtu);
    if mtu <= smallest || is_answered(mtu) || !is_answered(smallest) {
        return None;
    }
    while is_lost - passes > close {
        let middle = passes + (is_lost - passes) / 2;
        if is_answered(middle) { passes = middle } else { is_lost = middle }
    }
    // Losses that do not depend on the size lead nowhere in particular.
    (!is_answered(is_lost) && is_answered(passes)).then_some(Sizes { passes, is_lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_found_from_below_and_above() {
        for limit in [576, 577, 1000, 1279, 1419] {
            for close in [CLOSE_ENOUGH, 1] {
                let Sizes { passes, is_lost } = search(576, 1420, close, &mut |bytes| bytes <= limit).unwrap();
                assert!(passes <= limit && limit < is_lost && is_lost - passes <= close, "{limit}");
            }
        }
    }

    #[test]
    fn answers_that_are_late_for_a_moment_do_not_hide_the_size_that_passes() {
        for late in 0..=3 {
            let mut asked = 0;
            let mut is_answered = |_: u32| {
                asked += 1;
                asked > late
            };
            assert_eq!(search_largest(576, 1420, &mut is_answered), Some(1420), "{late} late");
        }
        assert_eq!(search_largest(576, 1420, &mut |bytes| bytes <= 1300), Some(1300));
        assert_eq!(search_largest(576, 1420, &mut |_| false), None);
    }

    #[test]
    fn a_path_that_carries_all_or_nothing_has_no_limit() {
        assert_eq!(search(576, 1420, CLOSE_ENOUGH, &mut |_| true), None);
        assert_eq!(search(576, 1420, CLOSE_ENOUGH, &mut |_| false), None);
        assert_eq!(search(1280, 1280, CLOSE_ENOUGH, &mut |_| false), None);
        let mut alternating = false;
        let mut flaky = |_: u32| {
            alternating = !alternating;
            !alternating
        };
        assert_eq!(search(576, 1420, CLOSE_ENOUGH, &mut flaky), None);
    }
}
