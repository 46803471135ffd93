//! Quantities for people.

/// A rate of bytes as bits in a second: networks are sold so.
pub(crate) fn rate(bytes: f64) -> String {
    format!("{}bit/s", scaled(bytes * 8.0, 1000.0, &["", "k", "M", "G", "T"]))
}

/// A count of bytes.
pub(crate) fn bytes(count: u64) -> String {
    format!("{}B", scaled(count as f64, 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi"]))
}

/// How long ago something was.
pub(crate) fn ago(seconds: u64) -> String {
    format!("{} ago", span(seconds))
}

/// A duration in its largest suitable unit.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// At most three digits and a unit.
fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    let digits = format!("{value:.decimals$}");
    let digits = digits.strip_suffix(".0").unwrap_or(&digits);
    format!("{digits} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rates = [0.0, 0.4, 124.0, 125.0, 125_000.0, 1_250_000_000.0].map(rate);
        assert_eq!(rates, ["0 bit/s", "3 bit/s", "992 bit/s", "1 kbit/s", "1 Mbit/s", "10 Gbit/s"]);
        let counts = [0, 999, 1000, 1536, 1 << 20, 1_500_000_000, u64::MAX].map(bytes);
        assert_eq!(counts, ["0 B", "999 B", "1 KiB", "1.5 KiB", "1 MiB", "1.4 GiB", "16384 PiB"]);
        assert_eq!([5, 120, 7200, 172_800].map(ago), ["5 s ago", "2 min ago", "2 h ago", "2 days ago"]);
    }
}
