//! The daemon's counters: reasons of dropped packets, and wake-ups that did and did not find work.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use linerate_control::printable::printable;
use linerate_control::zeroizing::Buffer;

use super::json;

type Counters = Vec<(String, u64)>;

/// Writes an aligned table for each interface. Reasons that never occurred are summed up.
pub(super) fn write(text: &mut Buffer, all: &[(String, Counters)]) -> fmt::Result {
    for (at, (name, counters)) in all.iter().enumerate() {
        if at > 0 {
            text.write_str("\n")?;
        }
        writeln!(text, "interface: {name}")?;
        table(text, counters)?;
    }
    Ok(())
}

/// Writes one object with the counters of each interface.
pub(super) fn write_json(text: &mut Buffer, all: Vec<(String, Counters)>) -> fmt::Result {
    let all: BTreeMap<_, BTreeMap<_, _>> =
        all.into_iter().map(|(name, counters)| (name, counters.into_iter().collect())).collect();
    json::write_object(text, &all)
}

fn table(text: &mut Buffer, counters: &Counters) -> fmt::Result {
    let is_silent = |(name, count): &&(String, u64)| *count == 0 && name.starts_with("drop_");
    let silent = counters.iter().filter(is_silent).count();
    let mut rows: Vec<(String, String)> = counters
        .iter()
        .filter(|counter| !is_silent(counter))
        .map(|(name, count)| (printable(name).replace('_', " "), count.to_string()))
        .collect();
    rows.extend(efficiencies(counters));
    let name_width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let value_width = rows.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
    for (name, value) in rows {
        writeln!(text, "  {name:name_width$}  {value:>value_width$}")?;
    }
    if silent > 0 {
        writeln!(text, "  drop reasons that did not occur: {silent}")?;
    }
    Ok(())
}

/// For each `X_work` beside an `X_empty`: the share that found work.
fn efficiencies(counters: &Counters) -> impl Iterator<Item = (String, String)> {
    counters.iter().filter_map(|(name, work)| {
        let thread = name.strip_suffix("_work")?;
        let empty = format!("{thread}_empty");
        let (_, empty) = counters.iter().find(|(name, _)| *name == empty)?;
        let all = work.checked_add(*empty).filter(|all| *all > 0)?;
        let share = 100.0 * *work as f64 / all as f64;
        Some((format!("{} that found work", thread.replace('_', " ")), format!("{share:.1} %")))
    })
}
