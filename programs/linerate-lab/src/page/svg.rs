//! The base of every plot: a small SVG of a fixed width, made to be shown at about its own size, beside others
//! on a wide screen and alone on a phone.

use super::axis::Axis;
use super::html::escape;
use super::marks::Mark;

/// The width of a plot in its own units, which are pixels on a phone of 360.
pub(super) const WIDTH: f64 = 360.0;

/// The size of all text in a plot.
pub(super) const TEXT: f64 = 12.0;

/// The height of a line of text.
pub(super) const LINE: f64 = 15.0;

/// Where text stands relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A plot being drawn, from top left.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.body.push_str(&format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ));
    }

    pub(super) fn bar(&mut self, class: &str, from: (f64, f64), width: f64, height: f64) {
        let (x, y) = from;
        self.body.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n"
        ));
    }

    pub(super) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64) {
        let (x, y) = at;
        self.body.push_str(&format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>\n"));
    }

    /// A line through `points` in the colour and dash of `mark`.
    pub(super) fn curve(&mut self, mark: Mark, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if mark.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", mark.dash) };
        self.body.push_str(&format!("<polyline class=\"{}\"{dash} points=\"{}\"/>\n", mark.class, points.join(" ")));
    }

    /// A marker with `title` as its tooltip.
    pub(super) fn marker(&mut self, mark: Mark, at: (f64, f64), title: &str) {
        let (outline, class) = (mark.outline(at.0, at.1, 4.0), mark.class);
        let title = escape(title);
        self.body.push_str(&format!("<path class=\"{class}\" d=\"{outline}\"><title>{title}</title></path>\n"));
    }

    /// A subject's name, cut to `width`, with the whole name as its tooltip.
    pub(super) fn name(&mut self, anchor: Anchor, at: (f64, f64), name: &str, width: f64) {
        let title = format!("<title>{}</title>", escape(name));
        self.write("name", anchor, at, &format!("{}{title}", escape(&fit(name, width))));
    }

    /// Text on its base line.
    pub(super) fn text(&mut self, class: &str, anchor: Anchor, at: (f64, f64), text: &str) {
        self.write(class, anchor, at, &escape(text));
    }

    fn write(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), escaped: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.body.push_str(&format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{escaped}</text>\n"));
    }

    /// The drawing, `height` high, with `label` for screen readers.
    pub(super) fn finish(self, height: f64, label: &str) -> String {
        let (label, body) = (escape(label), self.body);
        format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n{body}</svg>\n")
    }
}

/// The part of a plot inside its axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// Below a frame: the ticks of the horizontal axis and its name.
pub(super) const BELOW: f64 = 2.0 * LINE + 10.0;

impl Frame {
    /// The frame between the labels of `vertical` and `right`, `height` high.
    pub(super) fn beside(vertical: &Axis, right: f64, height: f64) -> Self {
        let labels = vertical.ticks.iter().map(|tick| width(&tick.label)).fold(0.0, f64::max);
        let top = LINE + 10.0;
        Self { left: labels + 8.0, right, top, bottom: top + height }
    }

    /// Where a pair of values is drawn.
    pub(super) fn at(&self, across: &Axis, up: &Axis, x: f64, y: f64) -> (f64, f64) {
        (
            self.left + across.position(x) * (self.right - self.left),
            self.bottom - up.position(y) * (self.bottom - self.top),
        )
    }

    /// Draws the horizontal axis: lines at the ticks, labels where there is room, the name below.
    pub(super) fn draw_across(&self, svg: &mut Svg, axis: &Axis) {
        let mut free = 0.0;
        for tick in &axis.ticks {
            let x = self.left + axis.position(tick.at) * (self.right - self.left);
            svg.line("grid", (x, self.top), (x, self.bottom));
            let half = width(&tick.label) / 2.0;
            let middle = x.clamp(half, WIDTH - half);
            if middle - half >= free {
                svg.text("tick", Anchor::Middle, (middle, self.bottom + LINE + 3.0), &tick.label);
                free = middle + half + 4.0;
            }
        }
        let end = self.right.max(width(&axis.name));
        svg.text("axis", Anchor::End, (end, self.bottom + 2.0 * LINE + 4.0), &axis.name);
        svg.line("rule", (self.left, self.bottom), (self.right, self.bottom));
    }

    /// Draws the vertical axis: lines and labels at the ticks, the name above.
    pub(super) fn draw_up(&self, svg: &mut Svg, axis: &Axis) {
        for tick in &axis.ticks {
            let y = self.bottom - axis.position(tick.at) * (self.bottom - self.top);
            svg.line("grid", (self.left, y), (self.right, y));
            svg.text("tick", Anchor::End, (self.left - 6.0, y + 4.0), &tick.label);
        }
        svg.text("axis", Anchor::Start, (1.0, TEXT), &axis.name);
    }
}

/// Moves labels apart: each as near as possible to where it wants to be, in their order, `gap` from the next and
/// between `low` and `high`, which must have room for them.
pub(super) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed = vec![0.0; wanted.len()];
    let mut free = low;
    for i in &order {
        placed[*i] = wanted[*i].max(free);
        free = placed[*i] + gap;
    }
    let mut free = high;
    for i in order.iter().rev() {
        placed[*i] = placed[*i].min(free);
        free = placed[*i] - gap;
    }
    placed
}

/// The most that `text` can be wide in a plot, by the widest of the usual screen fonts (DejaVu Sans, Verdana).
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(advance).sum::<f64>() * TEXT
}

/// A character's width as a share of the text's size.
fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '|' | '\'' => 0.30,
        ' ' | '.' | ',' | ':' | ';' | '/' | '-' | 'I' | 'f' | 't' | '(' | ')' | '[' | ']' | '!' => 0.41,
        'r' | '"' | '`' | '*' => 0.5,
        'm' | 'M' | 'W' | '%' | '@' => 1.08,
        'w' | 'N' | 'H' | 'G' | 'O' | 'Q' | 'D' | 'U' | '+' | '<' | '>' | '=' | '~' | '×' | '±' | '#' | '&' | '^' => {
            0.86
        }
        'A'..='Z' => 0.75,
        ' '..='~' => 0.65,
        _ => 1.1,
    }
}

/// `text` if it fits `room`, otherwise its two ends: names often differ in the last word only.
pub(super) fn fit(text: &str, room: f64) -> String {
    if width(text) <= room {
        return text.into();
    }
    let characters: Vec<char> = text.chars().collect();
    let ends = |kept: usize| -> String {
        let (head, tail) = (kept.div_ceil(2), characters.len() - kept / 2);
        characters[..head].iter().chain(&['…']).chain(&characters[tail..]).collect()
    };
    (0..characters.len()).rev().map(ends).find(|cut| width(cut) <= room).unwrap_or_else(|| "…".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_that_is_cut_keeps_both_ends() {
        assert_eq!(fit("boringtun", 100.0), "boringtun");
        let cut = fit("wireguard-go (Tailscale's fork)", 110.0);
        assert!(cut.starts_with("wireg") && cut.ends_with("fork)") && width(&cut) <= 110.0, "{cut}");
        assert_eq!(fit("anything", 0.0), "…");
    }

    proptest! {
        #[test]
        fn labels_are_apart_and_inside(wanted in prop::collection::vec(0.0..300.0_f64, 1..20)) {
            let placed = spread(&wanted, 15.0, 0.0, 300.0);
            let mut sorted = placed.clone();
            sorted.sort_by(f64::total_cmp);
            prop_assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 15.0 - 1e-9));
            prop_assert!(sorted[0] >= -1e-9 && sorted[sorted.len() - 1] <= 300.0 + 1e-9);
        }

        #[test]
        fn labels_with_room_stay_where_they_want_to_be(first in 0.0..100.0_f64, second in 120.0..300.0_f64) {
            prop_assert_eq!(spread(&[second, first], 15.0, 0.0, 300.0), vec![second, first]);
        }
    }
}
