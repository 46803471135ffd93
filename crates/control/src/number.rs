//! Decimal numbers as the UAPI and `wg` read them.

/// Parses a decimal number of at most `limit`; leading zeros are allowed, as in strconv.ParseUint(_, 10, _).
pub(crate) fn decimal(digits: &[u8], limit: u64) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        let value = value.checked_mul(10)?.checked_add(digit)?;
        (value <= limit).then_some(value)
    })
}
