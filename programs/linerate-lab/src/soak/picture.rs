//! A soak's record as a picture: what each process held and counted over time.

use std::collections::BTreeMap;

use super::record::{Record, Sample};
use super::verdict::increments;
use crate::page::{Across, Curve, Panel, picture as draw_picture};

/// The record as a picture (SVG).
#[must_use]
pub fn picture(record: &Record) -> String {
    let held = |figure: fn(&Sample) -> f64| curves(record.samples.iter().map(|sample| (sample, figure(sample))));
    let panels = [
        panel("Resident memory", "MB", held(|sample| sample.rss / 1e3)),
        panel("Anonymous memory", "MB", held(|sample| sample.anonymous / 1e3)),
        panel("File descriptors", "open", held(|sample| sample.descriptors)),
        panel("Threads", "running", held(|sample| sample.threads)),
        panel("Errors that an event explains", "since the start", counted(record, true)),
        panel("Errors that none explains", "since the start", counted(record, false)),
    ];
    draw_picture(&panels, "What our processes held and counted during a soak")
}

/// A curve for each process, in the order of their names.
fn curves<'a>(figures: impl Iterator<Item = (&'a Sample, f64)>) -> Vec<Curve> {
    let mut all: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (sample, figure) in figures {
        all.entry(&sample.process).or_default().push((sample.at / 60.0, figure));
    }
    // Daemons first: their curves take the colours that stand out most.
    let (keepers, daemons): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name.starts_with("keeper"));
    daemons.into_iter().chain(keepers).map(|(name, points)| Curve { name: name.into(), points }).collect()
}

/// A curve for each daemon of the errors counted so far, of those that are explained or of the others.
fn counted(record: &Record, is_explained: bool) -> Vec<Curve> {
    let increments = increments(record);
    let so_far = |sample: &Sample| -> u64 {
        let counted = increments.iter().filter(|step| step.process == sample.process && step.at <= sample.at);
        counted.filter(|step| step.is_explained == is_explained).map(|step| step.count).sum()
    };
    let daemons = record.samples.iter().filter(|sample| sample.handshake.is_some());
    curves(daemons.map(|sample| (sample, so_far(sample) as f64)))
}

fn panel(title: &str, up: &str, curves: Vec<Curve>) -> Panel {
    Panel { title: title.into(), across: Across::Linear("minutes".into()), up: up.into(), curves }
}
